"""The kernels on a GPU: each against its reference, then decode attention's speed on equal and ragged lengths.

Runs as ``headscope bench kernels`` or ``python -m headscope.bench.kernels out.json [commit]``. Every section prints its
results as JSON lines; one that fails says so, and the others run on.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from headscope.bench.checks import check_sections
from headscope.bench.clock import DEVICE, copy_rate, graph_ms, speed
from headscope.bench.kernel_checks import check_decode, check_graph, check_large, check_moves
from headscope.bench.kernel_tuning import tune
from headscope.bench.provenance import provenance
from headscope.bench.ragged import Case, Cell, budget_lengths, equal_lengths, make, ragged_lengths
from headscope.files import write_atomically
from headscope.kernels import append, pack, ragged_decode

DEADLINE_S = 200  # tuning, the last section, stops here
Rows = Iterator[dict[str, Any]]
CELLS = [
    Cell(8, 4, 7, 128, 32768),
    Cell(1, 4, 7, 128, 131072),
    Cell(1, 8, 4, 128, 131072),
    Cell(8, 8, 4, 128, 32768),
    Cell(1, 32, 1, 128, 32768),
    Cell(8, 4, 7, 64, 32768),
    Cell(1, 4, 7, 128, 262144),
    Cell(8, 32, 1, 128, 8192),
]
DIMS = [(32, 131072), (64, 65536), (80, 52428), (96, 43690), (128, 32768), (256, 16384)]  # about 540 MB each
BUDGETS = [
    Cell(1, 32, 1, 128, 256),
    Cell(1, 4, 7, 128, 256),
    Cell(8, 4, 7, 128, 256),
    Cell(32, 8, 4, 128, 256),
    Cell(1, 32, 1, 128, 2048),
]


def sdpa_times(cell: Cell, case: Case) -> dict[str, float]:
    """Time PyTorch's attention with one query on equal lengths, as it picks its kernel and by each kernel; in ms."""
    query = case.query.view(cell.rows, cell.kvs * cell.group, 1, cell.dim)
    key, value = (part.view(cell.rows, cell.kvs, cell.length, cell.dim) for part in (case.key, case.value))
    gqa = cell.group > 1

    def attend() -> torch.Tensor:
        return F.scaled_dot_product_attention(query, key, value, enable_gqa=gqa)

    times = {"default": graph_ms(attend)}
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
        try:
            with sdpa_kernel(backend):
                times[backend.name.split("_")[0].lower()] = graph_ms(attend)
        except RuntimeError:  # this kernel does not take this shape
            continue
    return times


def flash3_ms(cell: Cell, case: Case) -> float | None:
    """Time FlashAttention-3's varlen call, one sequence a segment, where it is installed."""
    try:
        import fa3_fwd_interface as flash3
    except ImportError:
        return None
    ends = torch.zeros(case.lengths.numel() + 1, dtype=torch.int32, device=DEVICE)
    ends[1:] = case.lengths.flatten().cumsum(0)
    queries = torch.arange(len(ends), dtype=torch.int32, device=DEVICE)
    longest = int(case.lengths.max())
    query = case.query.view(-1, cell.group, cell.dim)
    key, value = (part.view(-1, 1, cell.dim) for part in (case.key, case.value))
    inputs = query, key, value, queries, ends, 1, longest
    try:
        return graph_ms(partial(flash3.flash_attn_varlen_func, *inputs, softmax_scale=case.inputs[-1], num_splits=0))
    except (RuntimeError, TypeError, ValueError):  # this version does not take this shape
        return None


def time_cell(cell: Cell, copy: float, ragged: Callable[[Cell], list[int]] = ragged_lengths) -> dict[str, Any]:
    """Time one shape on equal and on ragged lengths of the same bytes, beside PyTorch on the equal ones."""
    case = make(cell, equal_lengths(cell))
    ours = graph_ms(lambda: ragged_decode(*case.inputs))
    sdpa = sdpa_times(cell, case)
    row: dict[str, Any] = {"cell": cell.name, "mb": round(case.kv_bytes / 1e6)}
    row["equal"] = speed(case.kv_bytes, ours, copy)
    row["sdpa_us"] = {name: round(latency * 1e3, 2) for name, latency in sdpa.items()}
    row["of_sdpa"] = round(min(sdpa.values()) / ours, 3)  # of its fastest kernel's speed
    equal_rate = case.kv_bytes / ours
    if flash3 := flash3_ms(cell, case):
        row["flash3_equal_us"] = round(flash3 * 1e3, 2)
    case = make(cell, ragged(cell))
    latency = graph_ms(lambda: ragged_decode(*case.inputs))
    row["ragged"] = speed(case.kv_bytes, latency, copy)
    row["of_equal"] = round(case.kv_bytes / latency / equal_rate, 3)
    row["longest"], row["shortest"] = int(case.lengths.max()), int(case.lengths.min())
    if flash3 := flash3_ms(cell, case):
        row["flash3_ragged_us"] = round(flash3 * 1e3, 2)
    return row


def time_cells(copy: float) -> Rows:
    time_cell(CELLS[0], copy)  # the first one measured came out a tenth slower than it does later
    for cell in CELLS:
        yield time_cell(cell, copy)


def time_budget(copy: float) -> Rows:
    """Time the lengths of a SparseMM budget of the bundled model: 12 layers as rows, 4 KV heads."""
    for length in (21845, 65536):
        yield {"lengths": "sparsemm, reader-22m"} | time_cell(Cell(12, 4, 7, 128, length), copy, budget_lengths)


def time_dims(copy: float) -> Rows:
    for dim, length in DIMS:
        yield time_cell(Cell(8, 4, 7, dim, length), copy)


def repeated(work: Callable[[], Any]) -> Callable[[], None]:
    """Give 32 runs of some work as one."""

    def runs() -> None:
        for _ in range(32):
            work()

    return runs


def time_small(_: float) -> Rows:
    """Time small budgets, where launches count: the mean of a graph of 32 calls, all but the first out of L2."""
    for cell in BUDGETS:
        case = make(cell, ragged_lengths(cell), slack=1024)  # for every append of the measurement
        row = torch.randn(cell.rows, cell.kvs, 1, cell.dim, device=DEVICE, dtype=torch.bfloat16)
        dense = make(cell, equal_lengths(cell))
        query = dense.query.view(cell.rows, -1, 1, cell.dim)
        key, value = (part.view(cell.rows, cell.kvs, cell.length, cell.dim) for part in (dense.key, dense.value))
        works: dict[str, Callable[[], Any]] = {
            "decode_us": partial(ragged_decode, *case.inputs),
            "append_us": partial(append, case.key, case.value, case.starts, case.lengths, row, row),
            "sdpa_us": partial(F.scaled_dot_product_attention, query, key, value, enable_gqa=cell.group > 1),
        }
        yield {"cell": cell.name} | {
            name: round(graph_ms(repeated(work)) / 32 * 1e3, 2) for name, work in works.items()
        }


def time_pack(copy: float) -> Rows:
    """Time packing a tenth of a 32K prompt, bytes read and written counted."""
    for rows, kvs, dim in ((1, 4, 128), (8, 4, 128), (1, 32, 128)):
        key, value = (torch.randn(rows, kvs, 32768, dim, device=DEVICE, dtype=torch.bfloat16) for _ in "kv")
        case = make(Cell(rows, kvs, 1, dim, 3277), ragged_lengths(Cell(rows, kvs, 1, dim, 3277)))
        lengths = case.lengths.flatten().tolist()
        positions = torch.cat([torch.randperm(32768, device=DEVICE)[:length].sort().values for length in lengths])
        latency = graph_ms(partial(pack, key, value, positions, case.key, case.value, case.starts, case.lengths))
        yield {"rows": rows, "kvs": kvs, "dim": dim, **speed(2 * case.kv_bytes, latency, copy)}


SECTIONS: dict[str, Callable[[float], Rows]] = {
    "check_decode": check_decode,
    "check_moves": check_moves,
    "check_graph": check_graph,
    "check_large": check_large,
    "cells": time_cells,
    "budget": time_budget,
    "dims": time_dims,
    "small": time_small,
    "pack": time_pack,
}


def run(out: Path, commit: str | None = None, only: Sequence[str] | None = None) -> dict[str, Any]:
    """Run every section, or those named, and write what it gave, after each section anew."""
    check_sections(only or (), (*SECTIONS, "tune"))
    if not torch.cuda.is_available():
        raise ValueError("the kernels are measured on a GPU, and PyTorch sees none here; run this on a CUDA machine")
    began = time.monotonic()
    copy = copy_rate()
    results: dict[str, Any] = {"bench": "kernels", **provenance(DEVICE, commit), "copy_tb_per_s": round(copy, 3)}
    print(json.dumps(results), flush=True)
    sections: dict[str, Callable[[float], Rows]] = {**SECTIONS, "tune": partial(tune, until=began + DEADLINE_S)}
    for name, section in sections.items():
        if only and name not in only:
            continue
        results[name] = []
        try:
            for row in section(copy):
                results[name].append(row)
                print(json.dumps({"section": name, **row}), flush=True)
        except Exception as error:
            results[name].append({"failed": f"{type(error).__name__}: {error}"[:400]})
            print(json.dumps({"section": name, **results[name][-1]}), flush=True)
        torch.cuda.empty_cache()
        write_atomically(out, json.dumps(results, indent=1) + "\n")
        print(json.dumps({"section": name, "seconds": round(time.monotonic() - began, 1)}), flush=True)
    return results


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
