"""Verify attention on a GPU: checked against fp32, then its speed beside one query's.

Runs as ``python -m headscope.bench.verify out.json [commit]``. Every section prints its results as JSON lines; one that
fails says so, and the others run on.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from headscope.bench.clock import DEVICE, copy_rate, graph_ms, speed, time_ms
from headscope.bench.provenance import provenance
from headscope.bench.ragged import Case, Cell, Inputs, equal_lengths, make, ragged_lengths
from headscope.bench.verify_checks import asked, by_segment, check, check_graph, check_large
from headscope.files import write_atomically
from headscope.kernels import ragged_decode, ragged_verify
from headscope.kernels.verify import launch, reference
from headscope.kernels.verify_tuning import TUNINGS, Tuning, tuning

DEADLINE_S = 150  # tuning, the last section, stops here
Rows = Iterator[dict[str, Any]]
CELLS = [
    Cell(8, 4, 7, 128, 32768),
    Cell(1, 4, 7, 128, 131072),
    Cell(8, 8, 4, 128, 32768),
    Cell(1, 32, 1, 128, 32768),
    Cell(8, 4, 7, 64, 65536),
    Cell(8, 4, 7, 80, 52428),
    Cell(8, 4, 7, 96, 43690),
    Cell(8, 4, 7, 256, 16384),
]
NEW = (2, 4, 9, 10, 16)
LONG = [(Cell(1, 4, 7, 128, 32768), 2048), (Cell(8, 4, 7, 128, 4096), 2048), (Cell(1, 4, 7, 128, 512), 4000)]
TRIED = {  # by rows: what else could be the fastest
    16: [Tuning(16, tile, 4, *each) for tile in (32, 64, 128) for each in ((2, 3), (3, 3), (3, 2))],
    64: [Tuning(64, tile, 4, *each) for tile in (32, 64) for each in ((2, 2), (3, 2), (3, 3), (3, 3, 168))],
    128: [Tuning(128, tile, 8, *each) for tile in (32, 64) for each in ((2, 1), (3, 1), (2, 2, 128), (3, 2, 128))],
}


def dense(cell: Cell, case: Case) -> tuple[torch.Tensor, torch.Tensor]:
    """Give the keys and values of equal lengths as PyTorch takes them: [row, kv, token, dim]."""
    key, value = (part.view(cell.rows, cell.kvs, cell.length, cell.dim) for part in (case.key, case.value))
    return key, value


def sdpa_ms(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> float:
    """Time PyTorch's attention without a mask, which with several queries is less than verify attention does."""
    gqa = query.shape[1] != key.shape[1]
    return graph_ms(partial(F.scaled_dot_product_attention, query, key, value, enable_gqa=gqa), 9)


def flash3_ms(inputs: Inputs) -> float | None:
    """Time FlashAttention-3's varlen call, one sequence a segment, where it is installed."""
    try:
        import fa3_fwd_interface as flash3
    except ImportError:
        return None
    query, key, value, _, lengths, scaling = inputs
    new, group = query.shape[2], query.shape[1] // lengths.shape[1]
    ends = torch.zeros(lengths.numel() + 1, dtype=torch.int32, device=DEVICE)
    ends[1:] = lengths.flatten().cumsum(0)
    starts = new * torch.arange(len(ends), dtype=torch.int32, device=DEVICE)
    queries = query.view(lengths.numel(), group, new, -1).transpose(1, 2).reshape(-1, group, query.shape[3])
    given = queries, key[:, None], value[:, None], starts, ends, new, int(lengths.max())
    try:
        work = partial(flash3.flash_attn_varlen_func, *given, softmax_scale=scaling, causal=True, num_splits=0)
        return graph_ms(work, 9)
    except (RuntimeError, TypeError, ValueError):  # this version does not take this shape
        return None


def time_cell(cell: Cell, copy: float) -> Rows:
    """Time one shape on equal and on ragged lengths of the same bytes, beside one query on the equal ones."""
    case, ragged = make(cell, equal_lengths(cell)), make(cell, ragged_lengths(cell))
    key, value = dense(cell, case)
    decode = graph_ms(lambda: ragged_decode(*case.inputs))
    sdpa = sdpa_ms(case.query[:, :, None], key, value)
    for new in NEW:
        if cell.group * new > 128:
            continue
        inputs = asked(case, new)
        latency = graph_ms(partial(ragged_verify, *inputs))
        uneven = graph_ms(partial(ragged_verify, *asked(ragged, new)))
        row = {"cell": cell.name, "new": new, "rows": cell.group * new, "mb": round(case.kv_bytes / 1e6)}
        row |= speed(case.kv_bytes, latency, copy)
        row |= {"one_query_us": {"ours": round(decode * 1e3, 2), "sdpa": round(sdpa * 1e3, 2)}}
        row |= {"of_one_query": round(latency / min(decode, sdpa), 3)}  # the time, as a multiple of the faster one's
        row |= {"ragged_us": round(uneven * 1e3, 2), "sdpa_us": round(sdpa_ms(inputs[0], key, value) * 1e3, 2)}
        if flash3 := flash3_ms(inputs):
            row["flash3_us"] = round(flash3 * 1e3, 2)
        yield row


def time_cells(copy: float) -> Rows:
    for _ in time_cell(CELLS[0], copy):  # the first one measured comes out slower than it does later
        pass
    for cell in CELLS:
        yield from time_cell(cell, copy)


def time_long(_: float) -> Rows:
    """Time a turn with a prompt of its own; check one segment of it, and say what memory it takes beside its output."""
    for cell, new in LONG:
        lengths = [cell.length + new] * (cell.rows * cell.kvs)
        inputs = asked(make(cell, lengths), new)
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        output = ragged_verify(*inputs)[0]
        peak = torch.cuda.max_memory_allocated() - before - output.nbytes
        latency = time_ms(partial(ragged_verify, *inputs), 5)
        flop = 4 * cell.rows * cell.kvs * cell.group * cell.dim * new * (cell.length + (new + 1) / 2)
        query, key, value = next(by_segment(inputs))[1:]
        one = torch.zeros(1, 1, dtype=torch.int64, device=DEVICE), inputs[4][:1, :1].contiguous()
        expected = reference(query[None].float(), key.float(), value.float(), *one, inputs[5])[0][0]
        off = float((output[0, : cell.group].float() - expected).norm() / expected.norm())
        row = {"cell": cell.name, "new": new, "ms": round(latency, 3), "tflop_per_s": round(flop / latency / 1e9, 1)}
        yield row | {
            "output_mb": round(output.nbytes / 1e6),
            "more_mb": round(peak / 1e6),
            "error": off,
            "ok": off < 5e-3,
        }


def tune(copy: float, until: float) -> Rows:
    """Time other tunings than those shipped, and give the best of each head dim and rows, until a moment."""
    for dim, (rows, new) in itertools.product(TUNINGS, ((16, 2), (64, 9), (128, 10))):
        cell = Cell(8, 4, 7, dim, 32768 * 128 // dim)
        case = make(cell, equal_lengths(cell))
        inputs = asked(case, new)
        found = []
        shipped = tuning(dim, cell.group * new, case.key.dtype)
        for tuned in dict.fromkeys([shipped, *TRIED[rows]]):
            if time.monotonic() > until:
                yield {"cell": cell.name, "stopped": "out of time"}
                return
            try:
                found.append((time_ms(partial(launch, *inputs, tuned), 7), tuned))
            except Exception as error:  # too much shared memory, say
                yield {"cell": cell.name, "tuning": astuple(tuned), "failed": repr(error)[:120]}
        for latency, tuned in sorted(found, key=lambda each: each[0])[:4]:
            row = {"cell": cell.name, "new": new, "tuning": astuple(tuned), "shipped": tuned == shipped}
            yield row | speed(case.kv_bytes, latency, copy)


SECTIONS: dict[str, Callable[[float], Rows]] = {
    "check": check,
    "check_graph": check_graph,
    "check_large": check_large,
    "verify": time_cells,
    "long": time_long,
}


def run(out: Path, commit: str | None = None) -> dict[str, Any]:
    """Run every section and write what it gave, after each section anew."""
    if not torch.cuda.is_available():
        raise ValueError(
            "verify attention is measured on a GPU, and PyTorch sees none here; run this on a CUDA machine"
        )
    began = time.monotonic()
    copy = copy_rate()
    results: dict[str, Any] = {"bench": "verify", **provenance(DEVICE, commit), "copy_tb_per_s": round(copy, 3)}
    print(json.dumps(results), flush=True)
    sections: dict[str, Callable[[float], Rows]] = {**SECTIONS, "tune": partial(tune, until=began + DEADLINE_S)}
    for name, section in sections.items():
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
