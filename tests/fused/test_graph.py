"""A graph leaves its segments as they were, is captured where they lie, and knows when it no longer holds."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, ClassVar

import pytest
import torch

from headscope.cache.segments import Segments
from headscope.fused.graph import WARM_UPS, Graph


class Stream:
    """Stands for a stream where there is no GPU."""

    made: ClassVar[list[Stream]] = []

    def __init__(self) -> None:
        Stream.made.append(self)


class Captured:
    """Stands for a CUDA graph: counts its replays."""

    replays = 0

    def replay(self) -> None:
        Captured.replays += 1


@pytest.fixture(autouse=True)
def events(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Let capturing run on the CPU; gives what was entered, in order."""
    found: list[Any] = []

    @contextmanager
    def entered(name: str, *given: Any, **more: Any) -> Any:
        found.append((name, *given[-1:], *more.values()))
        yield

    Stream.made.clear()
    Captured.replays = 0
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Captured)
    monkeypatch.setattr(torch.cuda, "graph", lambda graph, **more: entered("graph", **more))
    monkeypatch.setattr(torch.cuda, "device_of", lambda tensor: entered("device_of", tensor))
    return found


def drawn(layers: int = 2) -> list[Segments]:
    key = torch.zeros(1, 2, 5, 4)
    lengths = torch.full((1, 2), 5, dtype=torch.int32)
    return [Segments.of(key, key, torch.arange(5).repeat(2), lengths.clone()) for _ in range(layers)]


def appending(layers: list[Segments], runs: list[int], fail_at: int | None = None) -> Any:
    def work() -> str:
        for segments in layers:
            segments.append(torch.ones(1, 2, 1, 4), torch.ones(1, 2, 1, 4))
            if len(runs) == fail_at:
                raise RuntimeError("no memory")
        runs.append(1)
        return "given"

    return work


def test_it_leaves_lengths_and_room_and_a_replay_takes_room() -> None:
    layers, runs = drawn(), []  # type: ignore[var-annotated]
    room = layers[0].room
    graph = Graph(appending(layers, runs), layers, 1)
    assert len(runs) == WARM_UPS + 1 and graph.given == "given"
    assert all(each.room == room and each.lengths.tolist() == [[5, 5]] for each in layers)
    assert graph() == "given" and Captured.replays == 1 and layers[1].room == room - 1


@pytest.mark.parametrize("fail_at", range(WARM_UPS + 1))
def test_work_that_fails_leaves_lengths_and_room_too(fail_at: int) -> None:
    layers = drawn()
    room = layers[0].room
    with pytest.raises(RuntimeError, match="no memory"):
        Graph(appending(layers, [], fail_at), layers, 1)
    assert all(each.room == room and each.lengths.tolist() == [[5, 5]] for each in layers)


def test_it_is_captured_on_a_stream_of_its_own_on_the_segments_device(events: list[Any]) -> None:
    layers = drawn()
    Graph(appending(layers, []), layers, 1)
    (_, tensor), (_, stream) = events
    assert [name for name, _ in events] == ["device_of", "graph"]
    assert tensor is layers[0].key and stream is Stream.made[0]


def test_it_is_stale_once_buffers_move_or_room_is_used_up() -> None:
    layers = drawn()
    graph = Graph(appending(layers, []), layers, 1)
    assert not graph.stale
    layers[1].room = 0
    assert graph.stale
    layers[1].room = 32
    assert not graph.stale
    layers[1].reserve(64)
    assert graph.stale


def test_without_room_it_is_refused() -> None:
    layers = drawn()
    layers[1].room = 0
    with pytest.raises(ValueError, match="`layers` must have room for 1 tokens"):
        Graph(appending(layers, []), layers, 1)
