"""The full cache in the CPU's memory, on a GPU: what a round costs then, how much of the copying hides, what fits.

    python -m headscope.bench.offload OUT [COMMIT]

Rounds of the real loop on the Qwen2-VL-7B shape with random weights, an acceptance of 7 in 9 forced on them: with the
full cache on the GPU, in the CPU's memory, and there with each copy in line with the computation. Then the largest
context that a batch can have on a GPU of less memory, and one whole answer both ways.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import LogitsProcessorList, MaxLengthCriteria, StoppingCriteriaList

from headscope.bench.clock import DEVICE, time_ms
from headscope.bench.memory import MIB, prompt
from headscope.bench.provenance import provenance
from headscope.bench.shapes import random_model
from headscope.bench.speculate import Forced
from headscope.bench.step import Rig
from headscope.cache.host import GIB, Host
from headscope.cache.segments import Segments, laid
from headscope.files import write_atomically
from headscope.speculate import SparseToDense
from headscope.speculate.drafting import GraphedDrafting
from headscope.speculate.drafts import Kept, nothing_kept
from headscope.speculate.offload import BUFFERS, Offload
from headscope.speculate.processors import Processors
from headscope.speculate.report import Clock, Report
from headscope.speculate.state import State
from headscope.speculate.stops import Stops

SHAPE = "qwen2-vl-7b"
CELLS = ((1, 32768), (1, 131072), (8, 4096), (8, 16384))
GAMMA, STOOD = 9, 7  # accepted / proposed of 0.78, between StD's numbers for this model
KEPT = 1024
ROUNDS, WARM_UPS = 4, 2
COPY_BYTES = 2**29  # of each of two buffers, for the rates
SMALL_GIB = 20  # a smaller GPU: what PyTorch may use of this one
CONTEXTS = (4096, 8192, 16384, 32768)  # tried on it, in a batch of
ROWS = 8
ANSWER = (16384, 24)  # prompt and answer of the whole answer

Row = dict[str, Any]


@dataclass(eq=False)
class ForcedDrafting(GraphedDrafting, Forced):
    """The rounds of an offloaded cache, with a trace."""


def rates() -> Row:
    """Measure copies between the GPU and pinned memory, in GB/s, and how long pinning takes."""
    began = time.perf_counter()
    host = Host(COPY_BYTES // 256, 128, torch.bfloat16, DEVICE)
    pinned = time.perf_counter() - began
    here = torch.empty_like(host.key, device=DEVICE)
    into = time_ms(lambda: here.copy_(host.key, non_blocking=True), 5)
    out = time_ms(lambda: host.value.copy_(here, non_blocking=True), 5)
    return {
        "to_gpu_gb_per_s": round(COPY_BYTES / into / 1e6, 2),
        "to_cpu_gb_per_s": round(COPY_BYTES / out / 1e6, 2),
        "pin_gb_per_s": round(2 * COPY_BYTES / pinned / 1e9, 2),
    }


def hosts(rig: Rig, rows: int, context: int) -> list[Host]:
    """Make place in the CPU's memory for a full cache; what is in it does not matter."""
    slots = rows * rig.shape.kv_heads * (context + rig.room)
    dtype = rig.step.stack.embedding.dtype
    return [Host(slots, rig.shape.head_dim, dtype, DEVICE) for _ in range(rig.shape.layers)]


def away(rig: Rig, rows: int, context: int, places: Sequence[Host], overlap: bool = True) -> tuple[Offload, list[Any]]:
    """Give a full cache that lives there."""
    offload = Offload(DEVICE, rig.shape.layers, overlap=overlap)
    lengths = torch.full((rows, rig.shape.kv_heads), context, dtype=torch.int32, device=DEVICE)
    starts, _ = laid(lengths, rig.room, lengths.numel() * context)
    return offload, [offload.adopt(host, starts.clone(), lengths.clone(), rig.room) for host in places]


@torch.no_grad()
def round_ms(rig: Rig, kind: type[Forced], rows: int, context: int, whole: list[Segments]) -> float:
    """Time whole rounds of the real loop, after some to warm up and to capture."""
    numbers = {"dtype": torch.int64, "device": DEVICE}
    answer = (WARM_UPS + ROUNDS + 1) * (GAMMA + 1)
    state = State(
        ids=torch.ones(rows, context + answer + 64, **numbers),  # type: ignore[call-overload]
        lengths=torch.full((rows,), context + 1, device=DEVICE),
        offset=torch.zeros(rows, **numbers),  # type: ignore[call-overload]
        frozen=torch.zeros(rows, dtype=torch.bool, device=DEVICE),
        whole=whole,
        kept=rig.compressed(rows, context, KEPT, "uniform"),
    )
    longest = MaxLengthCriteria(context + answer + 16)
    playing = kind(
        state,
        Kept(nothing_kept(rig.model)),
        rig.step,
        Processors(LogitsProcessorList()),
        Stops(StoppingCriteriaList([longest]), None, context + 1, rows, 0),
        False,
        Report(),
        Clock(DEVICE),
        trace=torch.full((1, rows), STOOD, **numbers),  # type: ignore[call-overload]
    )
    for _ in range(WARM_UPS):
        playing.play(GAMMA)
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(ROUNDS):
        playing.play(GAMMA)
    torch.cuda.synchronize()
    return (time.perf_counter() - began) * 1e3 / ROUNDS


def copy_ms(layers: Sequence[Any], turns: int = 3) -> float:
    """Time what one pass copies, with nothing to compute."""

    def turn() -> None:
        for segments in layers:
            segments.enter()
            segments.leave(0)

    turn()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(turns):
        turn()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) * 1e3 / turns


def cell(rig: Rig, rows: int, context: int) -> Row:
    """Time rounds of one batch and context, each way. The steps of drafts and full cache are those of the real loop."""
    row: Row = {"batch": rows, "context": context, "gamma": GAMMA, "kv_bytes": rows * context * rig.token_bytes}
    resident = round_ms(rig, Forced, rows, context, rig.dense(rows, context))
    torch.cuda.empty_cache()
    began = time.perf_counter()
    places = hosts(rig, rows, context)
    row["pin_s"] = round(time.perf_counter() - began, 2)
    times: dict[bool, float] = {}
    for overlap in (True, False):
        offload, layers = away(rig, rows, context, places, overlap)
        times[overlap] = round_ms(rig, ForcedDrafting, rows, context, layers)
        row["staged_bytes"] = offload.staged_bytes
        if overlap:
            copying = copy_ms(layers)
        offload.close()
    return row | derived(resident, times[True], times[False], copying)


def derived(resident: float, offloaded: float, in_line: float, copying: float) -> Row:
    """Give the times of a round in ms, and what part of the copying ran while something was computed."""
    per_round = STOOD + 1
    return {
        "resident_round_ms": round(resident, 3),
        "offloaded_round_ms": round(offloaded, 3),
        "in_line_round_ms": round(in_line, 3),
        "copy_ms": round(copying, 3),
        "copying_hidden": round((in_line - offloaded) / copying, 3),
        "round_that_copies": round(copying / offloaded, 3),
        "resident_ms_per_token": round(resident / per_round, 3),
        "offloaded_ms_per_token": round(offloaded / per_round, 3),
    }


def largest(rig: Rig, work: Callable[[Rig, int], None]) -> int | None:
    """Find the largest context for which some work finds the memory that it needs."""
    for context in reversed(CONTEXTS):
        found = fits(rig, work, context)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        if found:
            return context
    return None


def fits(rig: Rig, work: Callable[[Rig, int], None], context: int) -> bool:
    """Tell whether some work finds the memory that it needs."""
    try:
        work(rig, context)
    except torch.cuda.OutOfMemoryError:
        return False
    return True


def capacity(rig: Rig) -> Row:
    """Find the largest context of a batch on a GPU of less memory, both ways, by playing rounds in it."""
    total = torch.cuda.get_device_properties(DEVICE).total_memory
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(SMALL_GIB * GIB / total)
    try:
        resident, offloaded = largest(rig, _resident), largest(rig, _offloaded)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    return {
        "gpu_gib": SMALL_GIB,
        "batch": ROWS,
        "largest_resident": resident,
        "largest_offloaded": offloaded,
        "largest_tried": max(CONTEXTS),
    }


def _resident(rig: Rig, context: int) -> None:
    round_ms(rig, Forced, ROWS, context, rig.dense(ROWS, context))


def _offloaded(rig: Rig, context: int) -> None:
    offload, layers = away(rig, ROWS, context, hosts(rig, ROWS, context))
    try:
        round_ms(rig, ForcedDrafting, ROWS, context, layers)
    finally:
        offload.close()


def answers(model: Any) -> Row:
    """Answer once each way: the peak of the GPU's memory above the weights, and whether the tokens are the same."""
    context, new = ANSWER
    ids, rows = prompt(model, context), {}
    for name, offload in (("resident", False), ("offloaded", True)):
        draft = SparseToDense("sinks_and_recent", per_head=KEPT, gamma=4, offload=offload)
        torch.cuda.empty_cache()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        found = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, do_sample=False, custom_generate=draft
        )
        peak = torch.cuda.max_memory_allocated() - before
        report = draft.report
        rows[name] = (
            found.tolist(),
            {
                "peak_mib": peak // MIB,
                "prompt_s": round(report.prompt_s, 3),
                "draft_s": round(report.draft_s, 4),
                "verify_s": round(report.verify_s, 4),
                "rounds": report.rounds,
                "whole_mib": report.whole_bytes // MIB,
                "staged_mib": report.staged_bytes // MIB,
                "path": report.path,
            },
        )
    same = rows["resident"][0] == rows["offloaded"][0]
    return {"context": context, "new_tokens": new, "same_tokens": same} | {name: row for name, (_, row) in rows.items()}


def measure(cells: Sequence[tuple[int, int]] = CELLS, layers: int | None = None) -> Iterator[tuple[str, Row]]:
    """Measure everything: (part, row). layers: fewer than the shape has, for a try."""
    yield "rates", rates()
    model = random_model(SHAPE, DEVICE, layers=layers)
    model.generation_config.eos_token_id = None
    rig = replace(Rig.of(model), room=(WARM_UPS + ROUNDS + 1) * (GAMMA + 1))
    for rows, context in cells:
        yield "cells", cell(rig, rows, context)
        torch.cuda.empty_cache()
    yield "answer", answers(model)
    yield "capacity", capacity(rig)


def run(out: Path, commit: str | None = None, **grid: Any) -> dict[str, Any]:
    """Measure everything and write it, after each part anew."""
    if not torch.cuda.is_available():
        raise ValueError("offloading is measured on a GPU, and PyTorch sees none here; run this on a CUDA machine")
    results: dict[str, Any] = {"bench": "offload", **provenance(DEVICE, commit)}
    results |= {"shape": SHAPE, "kept": KEPT, "buffers": BUFFERS, "cells": []}
    for part, row in measure(**grid):
        if part == "cells":
            results["cells"].append(row)
        else:
            results[part] = row
        print(json.dumps({part: row}), flush=True)
        write_atomically(out, json.dumps(results, indent=1) + "\n")
    return results


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
