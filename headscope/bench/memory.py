"""Memory and time of whole answers on a GPU, compressed and not: ``headscope bench memory``.

    python -m headscope.bench.memory OUT [COMMIT]

Random weights of real shapes, random prompts, real `generate` calls. Three ways to run one answer: transformers alone,
the full cache in the block of `hs.compress` (whose graphed step is the strongest baseline here), and a budget in it.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch

import headscope as hs
from headscope.bench.checks import check_counts, check_shapes
from headscope.bench.clock import DEVICE
from headscope.bench.provenance import provenance
from headscope.bench.shapes import random_model
from headscope.budget import Budget, allocate
from headscope.cache import RaggedCache
from headscope.families import geometry
from headscope.files import write_atomically
from headscope.scores import HeadScores

SHAPES = ("vicuna-7b", "llama-3.1-8b")
CONTEXTS = (2048, 8192, 32768)
BUDGETS = (256,)
NEW_TOKENS = 100
WINDOW = 32
MIB = 2**20

Row = dict[str, Any]


def measure(
    shapes: Sequence[str], contexts: Sequence[int], budgets: Sequence[int], layers: int | None
) -> Iterator[Row]:
    """Measure all cells. layers: fewer than the shape has, for a try."""
    for name in shapes:
        model = random_model(name, DEVICE, layers=layers)
        model.generation_config.eos_token_id = None
        weights = torch.cuda.memory_allocated()
        for context in contexts:
            cell = {"shape": name, "context": context, "batch": 1, "new_tokens": NEW_TOKENS}
            cell |= {"weight_mib": weights // MIB}
            yield from _cell(model, cell, budgets)
        del model
        torch.cuda.empty_cache()


def _cell(model: Any, cell: Row, budgets: Sequence[int]) -> Iterator[Row]:
    context = cell["context"]
    yield cell | {"run": "transformers"} | _fitting(answer, model, context, nullcontext)
    full = full_budget(model, context)
    yield cell | {"run": "full"} | _fitting(answer, model, context, partial(hs.compress, model, full))
    yield cell | {"run": "prefill"} | _fitting(prefill, model, context, nullcontext)
    for per_head in budgets:
        kept = uneven_budget(model, context, per_head)
        row = cell | {"budget": per_head}
        yield row | {"run": "budget"} | _fitting(answer, model, context, partial(hs.compress, model, kept))
        at_once = partial(hs.compress, model, kept, pieces=False)
        yield row | {"run": "prefill"} | _fitting(prefill, model, context, at_once)


def _fitting(work: Callable[..., Row], *inputs: Any) -> Row:
    """Measure what fits in the memory; say so of what does not."""
    try:
        return work(*inputs)
    except torch.OutOfMemoryError:
        return {"failed": "does not fit in the memory"}


def full_budget(model: Any, context: int) -> Budget:
    """Keep every token of a prompt."""
    shape = geometry(model.config)
    return Budget(torch.full((shape.layers, shape.kv_heads), context), WINDOW, context)


def uneven_budget(model: Any, context: int, per_head: int) -> Budget:
    """Give a SparseMM budget for uneven scores (U^4, seed 0)."""
    shape = geometry(model.config)
    uneven = torch.rand(shape.layers, shape.kv_heads, generator=torch.Generator().manual_seed(0)) ** 4
    scores = HeadScores.from_values(uneven, kv_heads=shape.kv_heads)
    return allocate(scores, per_head=per_head, rule="sparsemm", window=WINDOW, prompt=context)


def prompt(model: Any, context: int) -> torch.Tensor:
    """Draw a prompt, int64 [1, context]."""
    most = model.config.get_text_config().vocab_size
    return torch.randint(100, min(most, 30000), (1, context), generator=torch.Generator().manual_seed(1)).to(DEVICE)


class Clock:
    """A streamer that notes when each token comes."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, value: Any) -> None:
        """Note the time of a token; the prompt comes first."""
        torch.cuda.synchronize()
        self.times.append(time.perf_counter())

    def end(self) -> None:
        """Nothing is left to do."""


def answer(model: Any, context: int, block: Callable[[], AbstractContextManager[Any]]) -> Row:
    """Answer twice, the second time measured: peak and final memory, the first token's time, the others' median."""
    ids = prompt(model, context)
    cache: Any = None
    found: Any = None
    for _ in range(2):
        del cache, found
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        clock = Clock()
        with block():
            found = model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS,
                do_sample=False, streamer=clock, return_dict_in_generate=True, output_logits=False,
            )  # fmt: skip
            torch.cuda.synchronize()
            steady, peak = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
        cache = getattr(found, "cache", None) or found.past_key_values
    steps = [later - before for before, later in zip(clock.times[1:-1], clock.times[2:], strict=True)]
    kept = cache.kv_bytes if isinstance(cache, RaggedCache) else _dense_bytes(cache)
    return {
        "peak_mib": peak // MIB,
        "steady_mib": steady // MIB,
        "kv_mib": kept // MIB,
        "first_token_s": round(clock.times[1] - clock.times[0], 4),
        "ms_per_token": round(statistics.median(steps) * 1e3, 3),
        "decode_s": round(clock.times[-1] - clock.times[1], 4),
    }


def _dense_bytes(cache: Any) -> int:
    return sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)


@torch.no_grad()
def prefill(model: Any, context: int, block: Callable[[], AbstractContextManager[Any]], repeats: int = 4) -> Row:
    """Run prompts alone: the median time and the peak memory above the weights."""
    ids, times = prompt(model, context), []
    for _ in range(repeats):
        torch.cuda.empty_cache()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        with block():
            torch.cuda.synchronize()
            began = time.perf_counter()
            model(ids, use_cache=True, logits_to_keep=1)
            torch.cuda.synchronize()
            times.append(time.perf_counter() - began)
    peak = torch.cuda.max_memory_allocated() - before
    return {"prefill_s": round(statistics.median(times[1:]), 4), "prefill_mib": peak // MIB}


def run(
    out: Path,
    commit: str | None = None,
    *,
    shapes: Sequence[str] = SHAPES,
    contexts: Sequence[int] = CONTEXTS,
    budgets: Sequence[int] = BUDGETS,
    layers: int | None = None,
) -> dict[str, Any]:
    """Measure all cells and write them, after each cell anew."""
    check_shapes(shapes)
    check_counts(WINDOW, contexts=contexts, budgets=budgets)
    check_counts(layers=[1 if layers is None else layers])
    if not torch.cuda.is_available():
        raise ValueError("memory is measured on a GPU, and PyTorch sees none here; run this on a CUDA machine")
    results: dict[str, Any] = {"bench": "memory", **provenance(DEVICE, commit), "cells": []}
    for row in measure(shapes, contexts, budgets, layers):
        results["cells"].append(row)
        print(json.dumps(row), flush=True)
        write_atomically(out, json.dumps(results, indent=1) + "\n")
    return results


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
