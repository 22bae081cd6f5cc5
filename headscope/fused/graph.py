"""A CUDA graph of some work on segments: captured once, replayed while only numbers on the device change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import torch

from headscope.cache.segments import Segments

Given = TypeVar("Given")
WARM_UPS = 2


class Graph(Generic[Given]):
    """Work that appends `new` tokens to every segment of some layers, as a graph. Calling it replays it.

    The segments' buffers must stay where they are: what moves them (`Segments.reserve`) makes the graph stale.
    """

    def __init__(self, work: Callable[[], Given], layers: Sequence[Segments], new: int) -> None:
        """Run the work to warm up, capture it, and leave lengths as they were; slack behind them is written."""
        self._layers, self._new = list(layers), new
        self._places = self._where()
        if min(segments.room for segments in layers) < new:
            raise ValueError(f"`layers` must have room for {new} tokens before a graph is captured; reserve it first")
        with torch.cuda.device_of(layers[0].key):
            self.given: Given = self._capture(work)

    def _capture(self, work: Callable[[], Given]) -> Given:
        """Warm up where all else runs, since kernels share counters, and capture on a stream of this very device."""
        for _ in range(WARM_UPS):
            with self._unchanged():
                work()
        self._graph = torch.cuda.CUDAGraph()
        with self._unchanged(), torch.cuda.graph(self._graph, stream=torch.cuda.Stream()):
            return work()

    @contextmanager
    def _unchanged(self) -> Iterator[None]:
        """Put lengths and room back at the end of the block, also after an exception."""
        before = [(segments, segments.room, segments.lengths.clone()) for segments in self._layers]
        try:
            yield
        finally:
            for segments, room, lengths in before:
                segments.room = room
                segments.lengths.copy_(lengths)

    @property
    def stale(self) -> bool:
        """Whether a segment's buffers have moved, or have no room left for another replay."""
        return self._where() != self._places or min(segments.room for segments in self._layers) < self._new

    def __call__(self) -> Given:
        """Replay; give what the work gave, whose tensors hold the new results."""
        self._graph.replay()
        for segments in self._layers:
            segments.room -= self._new
        return self.given

    def _where(self) -> list[tuple[Any, ...]]:
        return [
            tuple(tensor.data_ptr() for tensor in (each.key, each.value, each.starts, each.lengths))
            for each in self._layers
        ]
