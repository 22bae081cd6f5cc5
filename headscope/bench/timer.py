"""The timer of a step: CUDA graphs and events on a GPU, the wall clock elsewhere."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import torch

from headscope.bench import clock
from headscope.bench.step import Rig, greedy, step_ms
from headscope.cache.segments import Segments
from headscope.fused.step import Attend, tie_lengths

COPY_BYTES = 64 * 2**20  # on a processor: more than its caches hold


class Timer(Protocol):
    """Times a greedy step of a rig on caches of some context: the median and the spread of its repeats, in ms."""

    def __call__(
        self, rig: Rig, layers: list[Segments], context: int, attention: Attend | None = None, repeats: int = 15
    ) -> tuple[float, float]: ...


def timer_of(device: torch.device) -> Timer:
    """Choose the timer of a device."""
    return step_ms if device.type == "cuda" else plain_ms


def plain_ms(
    rig: Rig, layers: list[Segments], context: int, attention: Attend | None = None, repeats: int = 15
) -> tuple[float, float]:
    """Time a step by the wall clock, as it is launched."""
    rows = layers[0].lengths.shape[0]
    tie_lengths(layers)
    work = greedy(rig.step if attention is None else replace(rig.step, attend=attention), layers, rows, context)
    work()
    return _spread([wall_ms(work) for _ in range(repeats)])


def wall_ms(work: Callable[[], object]) -> float:
    """Time some work of the processor."""
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1e3


def copy_rate(device: torch.device) -> float:
    """Measure the bandwidth of a copy, reads and writes counted, in TB/s."""
    if device.type == "cuda":
        return clock.copy_rate()
    source = torch.zeros(COPY_BYTES, dtype=torch.uint8)
    target = torch.empty_like(source)
    median, _ = _spread([wall_ms(lambda: target.copy_(source)) for _ in range(5)])
    return 2 * source.nbytes / median / 1e9


def _spread(times: list[float]) -> tuple[float, float]:
    return statistics.median(times), max(times) - min(times)
