"""The tunings of sparse projections on the GPU at hand, beside the dense ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple
from functools import partial
from typing import Any

import torch

from headscope.bench.clock import captured, time_ms
from headscope.bench.stack import GROUPS, LAYERS, Stack, Tuning, own, pytorch
from headscope.kernels import linear
from headscope.kernels.sparse_linear import Split, Whole

Rows = Iterator[dict[str, Any]]
SPLITS = [Split(words, together, finish) for words in (1, 2, 4) for together in (4, 8) for finish in (16, 32)]
WHOLES = [
    Whole(out, warps, together, registers)
    for out in (32, 64)
    for warps in (4, 8, 16)
    for together, registers in ((4, 64), (8, 80), (16, 128))
]
DENSE = [
    linear.Tuning(8, 512, 4, 1, 8),
    linear.Tuning(8, 512, 4, 1, 16),
    linear.Tuning(4, 1024, 4, 1, 8),
    linear.Tuning(4, 512, 2, 1, 16),
    linear.Tuning(16, 256, 4, 1, 8),
    linear.Tuning(8, 1024, 8, 1, 8),
]


def compile_all(stack: Stack, keep: float, tuned: Sequence[Tuning]) -> list[Tuning]:
    """Compile kernels in several threads; give the tunings that do."""

    def attempt(each: Tuning) -> bool:
        try:
            for group in GROUPS[:3]:
                stack.sparse_call(stack.sparse[0], group, stack.thresholds(group, keep), each)()
        except Exception:
            return False
        return True

    with ThreadPoolExecutor(12) as pool:
        good = list(pool.map(attempt, tuned))
    torch.cuda.synchronize()
    return [each for each, works in zip(tuned, good, strict=True) if works]


def group_us(stack: Stack, group: str, keep: float, tuned: Tuning, repeats: int = 5) -> float:
    """Time a group of one layer, the mean of all layers in turn in a CUDA graph, in µs."""
    graph = captured(stack.sparse_work(keep, {group: tuned}))[0]
    return time_ms(graph.replay, repeats) / LAYERS * 1e3


def tune(stack: Stack, keep: float, until: float) -> Rows:
    """Give the fastest tunings of each group, and what the whole layer comes to with them."""
    started = time.monotonic()
    tried = compile_all(stack, keep, [*SPLITS, *WHOLES])
    yield {"compiled": len(tried), "of": len(SPLITS + WHOLES), "seconds": round(time.monotonic() - started, 1)}
    best: dict[str, Tuning] = {}
    for group in GROUPS:
        found = [(group_us(stack, group, keep, each), each) for each in tried if time.monotonic() < until]
        if not found:
            yield {"group": group, "stopped": "out of time"}
            return
        found.sort(key=lambda pair: pair[0])
        best[group] = found[0][1]
        for kind in (Split, Whole):
            fastest = [(us, each) for us, each in found if isinstance(each, kind)][:6]
            yield {
                "group": group,
                "kind": kind.__name__,
                "us": [[round(us, 2), *astuple(each)] for us, each in fastest],
            }
    yield {"best": {group: [type(each).__name__, *astuple(each)] for group, each in best.items()}}
    for part in (0.3, 0.4, 0.5, 0.6, 0.7, 1.0):
        yield {"keep": part, "layer_us": layer_us(stack.sparse_work(part, best))}


def layer_us(work: Callable[[], None], repeats: int = 15) -> float:
    """Time a layer, the mean of all layers in turn in a CUDA graph, in µs."""
    return round(time_ms(captured(work)[0].replay, repeats) / LAYERS * 1e3, 2)


def tune_dense(stack: Stack) -> Rows:
    """Time the dense ways, each on the whole layer and on each group."""
    ways = {"pytorch": pytorch} | {f"own {astuple(each)}": partial(own, tuned=each) for each in DENSE}
    for name, how in ways.items():
        row: dict[str, Any] = {"dense": name}
        for label, groups in {"layer": GROUPS, **{group: (group,) for group in GROUPS}}.items():
            try:
                row[label] = layer_us(stack.dense_work(how, groups))
            except Exception as error:
                row[label] = repr(error)[:100]
        yield row
