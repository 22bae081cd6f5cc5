"""The clock of GPU measurements: medians, with the L2 cache flushed before each run."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

DEVICE = torch.device("cuda")
FLUSH_BYTES = 256 * 2**20  # written between timed calls: several times the L2 cache


@cache
def flush() -> torch.Tensor:
    """Give what is written between timed calls."""
    return torch.empty(FLUSH_BYTES, dtype=torch.uint8, device=DEVICE)


def time_ms(work: Callable[[], Any], repeats: int = 25) -> float:
    """Give the median time of some work, the L2 cache flushed before each run; the flush hides the launches."""
    times = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats)]
    work()
    torch.cuda.synchronize()
    for start, end in times:
        flush().zero_()
        start.record()
        work()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(end) for start, end in times)


def captured(work: Callable[[], Any]) -> tuple[torch.cuda.CUDAGraph, Any]:
    """Capture some work in a CUDA graph after a run of it to warm up; give the graph and what the work gave."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        given = work()
    return graph, given


def graph_ms(work: Callable[[], Any], repeats: int = 25) -> float:
    """Give the median time of a CUDA graph of some work, the L2 cache flushed before each replay."""
    return time_ms(captured(work)[0].replay, repeats)


def speed(kv_bytes: int, latency_ms: float, copy: float | None = None) -> dict[str, float]:
    """Give a latency in µs, its bandwidth in TB/s, and its share of the copy's."""
    rate = kv_bytes / latency_ms / 1e9
    return {"us": round(latency_ms * 1e3, 2), "tb_per_s": round(rate, 3)} | (
        {"of_copy": round(rate / copy, 3)} if copy else {}
    )


def copy_rate() -> float:
    """Measure the bandwidth of a copy of 2 GiB, reads and writes counted, in TB/s.

    Not in a graph: there the copy engines do it, at two thirds of the speed.
    """
    source = torch.randn(2**29, device=DEVICE)
    target = torch.empty_like(source)
    return 2 * source.nbytes / time_ms(lambda: target.copy_(source)) / 1e9
