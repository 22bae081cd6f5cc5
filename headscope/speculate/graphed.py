"""Graphed rounds: the drafting of a round and its verification each run as one CUDA graph."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from headscope.fused import FusedStep, fuse
from headscope.fused.step import tie_lengths
from headscope.kernels.tail import copy_tail
from headscope.runtime import Forward, StockForward, stock
from headscope.speculate.drafts import Draft, Lookup
from headscope.speculate.processors import Processors
from headscope.speculate.rounds import Proposal, Rounds
from headscope.speculate.state import State, rewind

# Of transformers' own logits processors, those that look at one position's scores and never wait for the device.
CAPTURABLE = frozenset(
    {
        "InfNanRemoveLogitsProcessor",
        "LogitNormalization",
        "MinPLogitsWarper",
        "TemperatureLogitsWarper",
        "TopKLogitsWarper",
        "TopPLogitsWarper",
    }
)


def choose_forward(model: nn.Module) -> Forward:
    """Give the fused step on a GPU, where the model's stack is like Llama's; else the model's own forward."""
    on_gpu = next(model.parameters()).is_cuda
    return (fuse(model) if on_gpu else None) or stock(model)


def why_not(forward: Any, draft: Draft, processors: Processors, device: torch.device) -> str | None:
    """Say what keeps rounds from being graphed; None: nothing."""
    if device.type != "cuda":
        return f"no graph: the model is on {device.type}"
    if not isinstance(forward, FusedStep):
        return "no graph: the model runs through its own modules"
    if isinstance(draft, Lookup):
        return "no graph: the draft is no model"
    names = [type(each).__name__ for each in processors.processors]
    other = next((name for name in names if name not in CAPTURABLE), None)
    if not processors.empty and (not processors.independent or other is not None):
        return f"no graph: {other or names[0]} is not known to be capturable"
    return None


@dataclass(frozen=True, eq=False)
class Captured:
    """A round of so many draft tokens. told: what `settle` gives, in place. places: of the buffers it runs on."""

    draft: torch.cuda.CUDAGraph
    verify: torch.cuda.CUDAGraph
    told: Tensor
    places: list[int]


@dataclass(eq=False)
class GraphedRounds(Rounds):
    """Rounds whose steps are captured at first and replayed from then on, one pair of graphs for each gamma.

    A round that is observed runs as it does without graphs.
    """

    graphs: dict[int, Captured] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._tie()

    def run(self, gamma: int, observer: StockForward | None = None) -> list[list[int]]:
        """Run a round on the device; see `Rounds.run`."""
        if observer is not None:
            return super().run(gamma, observer)
        captured = self.graphs.get(gamma)
        if captured is None or captured.places != self._places():
            self.graphs = {at: each for at, each in self.graphs.items() if each.places == self._places()}
            self._tie()
            captured = self.graphs[gamma] = self._capture(gamma)
        with self.clock.part("draft"):
            captured.draft.replay()
        with self.clock.part("verify"):
            captured.verify.replay()
        told = captured.told.tolist()
        rewind(self.state.layers(), 0, room=-max(count for count, *_ in told))
        return told

    def _capture(self, gamma: int) -> Captured:
        """Run a round to warm up, capture it, and leave the state as it was, also after an exception.

        The warm-up runs where all else does, since kernels share counters; the capture on a stream of the very device.
        """
        with torch.cuda.device_of(self.state.ids):
            with self._unchanged():
                self._verify(self.propose(gamma), gamma)
            draft, verify, stream = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph(), torch.cuda.Stream()
            with self._unchanged():
                with torch.cuda.graph(draft, stream=stream):
                    proposal = self.propose(gamma)
                with torch.cuda.graph(verify, stream=stream):
                    told = self._verify(proposal, gamma)
        return Captured(draft, verify, told, self._places())

    def _verify(self, proposal: Proposal, gamma: int) -> Tensor:
        logits = self.verify(proposal)
        catch_up(self.state, gamma + 1)
        return self.settle(proposal, logits, fed=gamma + 1)

    @contextmanager
    def _unchanged(self) -> Iterator[None]:
        """Put back at the end of the block what a round changes; slack behind the segments is written."""
        state, layers = self.state, self.state.layers()
        numbers = [state.ids, state.lengths, state.frozen, *(segments.lengths for segments in layers)]
        before, rooms = [tensor.clone() for tensor in numbers], [segments.room for segments in layers]
        try:
            yield
        finally:
            for tensor, old in zip(numbers, before, strict=True):
                tensor.copy_(old)
            for segments, room in zip(layers, rooms, strict=True):
                segments.room = room

    def _tie(self) -> None:
        for layers in (self.state.whole, self.state.kept):
            if layers:
                tie_lengths(layers)

    def _places(self) -> list[int]:
        parts = [(each.key, each.value, each.starts, each.lengths) for each in self.state.layers()]
        return [tensor.data_ptr() for part in parts for tensor in part]


def catch_up(state: State, new: int) -> None:
    """Give the draft's segments the dense keys and values of the last `new` tokens, as `State.catch_up` does."""
    if not state.kept:
        return
    rewind(state.kept, -new, room=-new)
    for whole, kept in zip(state.whole, state.kept, strict=True):
        source, target = ((each.key, each.value, each.starts, each.lengths) for each in (whole, kept))
        copy_tail(source, target, new)
