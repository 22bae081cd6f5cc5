"""Latency of a decode step on a GPU, against context, batch and budget: ``headscope bench decode``.

    python -m headscope.bench.decode OUT [COMMIT]

Every cell is one greedy step of a real shape with random weights, in a CUDA graph. The full cache runs in the same
fused step with the fastest attention at hand, and in transformers as people run it.
"""

from __future__ import annotations

import inspect
import itertools
import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import DynamicCache

from headscope.bench.checks import check_counts, check_shapes
from headscope.bench.clock import DEVICE, copy_rate
from headscope.bench.provenance import provenance
from headscope.bench.shapes import random_model
from headscope.bench.step import WINDOW, Rig, dense_attentions, kv_bytes, step_ms
from headscope.files import write_atomically

SHAPES = ("qwen2-vl-7b", "vicuna-7b", "mistral-7b", "llama-3.1-8b")
CONTEXTS = (2048, 8192, 32768, 131072)
BATCHES = (1, 8, 32)
BUDGETS = (64, 256, 1024)
ALL_AT = 32768  # the context at which all budgets are timed; elsewhere, since a step hardly depends on it, only one
ONE = 256
SPARE_BYTES = 4 * 2**30  # for activations, graphs and the L2 flush
STOCK_BATCHES = (1,)

Row = dict[str, Any]


def measure(
    shapes: Sequence[str],
    contexts: Sequence[int],
    batches: Sequence[int],
    budgets: Sequence[int],
    layers: int | None,
    stock: bool,
) -> Iterator[Row]:
    """Time all cells. layers: fewer than the shape has, for a try. stock: transformers' own loop too."""
    copy = copy_rate()
    yield {"copy_tb_per_s": round(copy, 3)}
    for name in shapes:
        rig = Rig.of(random_model(name, DEVICE, layers=layers))
        weights = rig.step.stack.weight_bytes
        yield {"shape": name, "weight_bytes": weights, "weights_ms": round(weights / copy / 1e9, 3)}
        for batch, context in itertools.product(batches, contexts):
            yield from _cell(rig, {"shape": name, "batch": batch, "context": context}, budgets, copy, stock)
        del rig
        torch.cuda.empty_cache()


def _cell(rig: Rig, cell: Row, budgets: Sequence[int], copy: float, stock: bool) -> Iterator[Row]:
    """Time one cell, the small caches first: just after gigabytes of a full one they were up to 12 % slower."""
    batch, context = cell["batch"], cell["context"]
    fits = batch * context * rig.token_bytes + SPARE_BYTES < torch.cuda.mem_get_info()[0]
    for per_head in budgets:
        if per_head < context and (context == ALL_AT or per_head == ONE or ONE not in budgets):
            layers = rig.compressed(batch, context, per_head)
            yield cell | {"cache": per_head, "attention": "headscope"} | _speed(rig, layers, context, None, copy)
    if fits:
        layers = rig.dense(batch, context)
        for name, attention in dense_attentions().items():
            row = cell | {"cache": "full", "attention": name}
            yield row | _speed(rig, layers, context, attention, copy)
            _set_lengths(layers, context)
        del layers
    else:
        yield cell | {"cache": "full", "failed": "does not fit in the memory"}
    torch.cuda.empty_cache()
    if stock and fits and batch in STOCK_BATCHES and 2 * batch * context * rig.token_bytes < 60e9:
        yield cell | {"cache": "full", "attention": "transformers"} | stock_step(rig, batch, context)
        torch.cuda.empty_cache()


def _set_lengths(layers: Any, context: int) -> None:
    for segments in layers:
        segments.room += int(segments.lengths.max()) - context
        segments.lengths.fill_(context)


def _speed(rig: Rig, layers: Any, context: int, attention: Any, copy: float) -> Row:
    moved = kv_bytes(layers) + rig.step.stack.weight_bytes
    try:
        latency, spread = step_ms(rig, layers, context, attention)
    except Exception as error:  # a shape that an attention does not take
        return {"failed": f"{type(error).__name__}: {error}"[:200]}
    rate = moved / latency / 1e9
    times = {"ms_per_token": round(latency, 4), "spread_ms": round(spread, 4)}
    return times | {"bytes": moved, "tb_per_s": round(rate, 3), "of_copy": round(rate / copy, 3)}


@torch.no_grad()
def stock_step(rig: Rig, batch: int, context: int, repeats: int = 7) -> Row:
    """Time a step of the model's own forward pass on transformers' own cache, launched from Python."""
    shape, dtype = rig.shape, rig.step.stack.embedding.dtype
    cache = DynamicCache()
    for layer in range(shape.layers):
        key = torch.empty(batch, shape.kv_heads, context, shape.head_dim, device=DEVICE, dtype=dtype).normal_()
        cache.update(key, torch.empty_like(key).normal_(), layer)
    text: Any = rig.model
    name = "cache" if "cache" in inspect.signature(text.forward).parameters else "past_key_values"
    ids, times = torch.ones(batch, 1, dtype=torch.int64, device=DEVICE), []
    for place in range(repeats + 2):
        torch.cuda.synchronize()
        began = time.perf_counter()
        positions = torch.full_like(ids, context + place)
        if hasattr(text.config, "vision_config"):
            positions = positions.expand(3, -1, -1)
        logits = text(input_ids=ids, position_ids=positions, use_cache=True, **{name: cache}).logits
        ids = logits[:, -1:].argmax(-1)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - began) * 1e3)
    times = times[2:]
    return {"ms_per_token": round(statistics.median(times), 3), "spread_ms": round(max(times) - min(times), 3)}


def run(
    out: Path,
    commit: str | None = None,
    *,
    shapes: Sequence[str] = SHAPES,
    contexts: Sequence[int] = CONTEXTS,
    batches: Sequence[int] = BATCHES,
    budgets: Sequence[int] = BUDGETS,
    layers: int | None = None,
    stock: bool = True,
) -> dict[str, Any]:
    """Measure all cells and write them, after each cell anew."""
    check_shapes(shapes)
    check_counts(contexts=contexts, batches=batches, layers=[1 if layers is None else layers])
    check_counts(WINDOW, budgets=budgets)
    if not torch.cuda.is_available():
        raise ValueError("decoding is measured on a GPU, and PyTorch sees none here; run this on a CUDA machine")
    results: dict[str, Any] = {"bench": "decode", **provenance(DEVICE, commit), "shapes": [], "cells": []}
    for row in measure(shapes, contexts, batches, budgets, layers, stock):
        results["cells" if "cache" in row else "shapes"].append(row)
        print(json.dumps(row), flush=True)
        write_atomically(out, json.dumps(results, indent=1) + "\n")
    return results


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
