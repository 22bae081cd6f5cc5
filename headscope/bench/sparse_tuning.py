"""The tunings of sparse projections on the GPU at hand, beside the dense ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, replace
from functools import partial
from typing import Any

import torch

from headscope.bench.clock import captured, time_ms
from headscope.bench.stack import GROUPS, LAYERS, Stack, own, pytorch
from headscope.kernels import linear, sparse_linear
from headscope.kernels.sparse_linear import Tuning

Rows = Iterator[dict[str, Any]]
WAYS = [(4, 1), (8, 1), (16, 1), (4, 3), (4, 4), (4, 6), (8, 2), (8, 3), (2, 8)]  # inputs together, stages
WORDS = (1, 2, 4, 8, 16)
FINISHES = (16, 64, 128)
DENSE = [
    linear.Tuning(8, 512, 4, 1, 8),
    linear.Tuning(8, 512, 4, 1, 16),
    linear.Tuning(4, 1024, 4, 1, 8),
    linear.Tuning(4, 512, 2, 1, 16),
    linear.Tuning(16, 256, 4, 1, 8),
    linear.Tuning(8, 1024, 8, 1, 8),
]


class Nothing:
    """Stands for a kernel that is not run."""

    def __getitem__(self, _: Any) -> Callable[..., None]:
        return lambda *_, **__: None


def tunings() -> list[Tuning]:
    """Give the tunings to try."""
    return [Tuning(words, together, stages) for together, stages in WAYS for words in WORDS]


def compile_all(stack: Stack, keep: float, tuned: list[Tuning]) -> list[Tuning]:
    """Compile kernels in several threads; give the tunings that do."""

    def attempt(each: Tuning) -> bool:
        try:
            for group in GROUPS[:3]:
                stack.sparse_call(stack.sparse[0], group, keep, each)()
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
    tried = compile_all(stack, keep, tunings())
    yield {"compiled": len(tried), "of": len(tunings()), "seconds": round(time.monotonic() - started, 1)}
    best: dict[str, Tuning] = {}
    for group in GROUPS:
        found = [(group_us(stack, group, keep, each), each) for each in tried if time.monotonic() < until]
        found.sort(key=lambda pair: pair[0])
        more = [replace(each, finish=finish) for _, each in found[:4] for finish in FINISHES]
        found += [(group_us(stack, group, keep, each, 9), each) for each in compile_all(stack, keep, more)]
        found.sort(key=lambda pair: pair[0])
        best[group] = found[0][1]
        yield {"group": group, "fastest": [[round(us, 2), *astuple(each)] for us, each in found[:14]]}
        words: dict[str, Any] = {}
        for us, each in found:
            words.setdefault(str((each.together, each.stages)), [each.words, each.finish, round(us, 2)])
        yield {"group": group, "words": words}
        alone = {}
        for name in ("sparse_kernel", "finish_kernel"):
            kernel = getattr(sparse_linear, name)
            setattr(sparse_linear, name, Nothing())
            try:
                alone[f"without_{name}"] = round(group_us(stack, group, keep, best[group], 9), 2)
            finally:
                setattr(sparse_linear, name, kernel)
        yield {"group": group, **alone}
    yield {"shape": stack.shape.name, "best": {group: astuple(each) for group, each in best.items()}}
    for part in (0.3, 0.4, 0.5, 0.6, 0.7, 1.0):
        yield {"keep": part, "layer_us": layer_us(stack.sparse_work(part, best))}
    ways = {"pytorch": pytorch, "own": own}
    yield {"dense_us": {name: layer_us(stack.dense_work(how)) for name, how in ways.items()}}
    several = Stack(stack.shape, stack.dense, stack.sparse, Stack.draw(stack.shape, 2))
    compile_all(several, keep, list(best.values()))
    dense = {name: layer_us(several.dense_work(how)) for name, how in ways.items()}
    yield {"rows": 2, "keep": keep, "layer_us": layer_us(several.sparse_work(keep, best)), "dense_us": dense}


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
