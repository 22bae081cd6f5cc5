"""Calibration: the bandwidth of a machine and the kernel costs of each branch on it: ``headscope bytes calibrate``.

    python -m headscope.bench.calibrate OUT [COMMIT [SETTINGS]]

SETTINGS: JSON of the keywords of `run`. Random weights and caches; steps in CUDA graphs. The contexts are not those of
`headscope bench crossing`: a prediction uses no cell of the campaign that it predicts.
"""

from __future__ import annotations

import itertools
import json
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from headscope.accounting.calibration import FORMAT, Calibration
from headscope.accounting.cell import Cell
from headscope.bench import cells as bench_cells
from headscope.bench.cells import Task
from headscope.bench.fresh import Run, fresh
from headscope.bench.provenance import provenance
from headscope.bench.timer import copy_rate
from headscope.files import write_atomically

SHAPES = ("llama-3.1-8b", "llama-3.2-3b")
CONTEXTS = (9216, 46080, 101376)  # tokens; `headscope bench crossing` looks at multiples of 4096
KEEP_ACT = (0.5, 0.7)
KEEP_KV = (0.2, 0.3, 0.5)
BOTH = ((0.5, 0.3),)
TWICE = 2  # rounds, the second one in the other order


def cells_of(
    shape: str,
    contexts: Sequence[int],
    keep_act: Sequence[float],
    keep_kv: Sequence[float],
    both: Sequence[tuple[float, float]],
    dtype: str,
) -> list[Cell]:
    """List a shape's cells: each branch alone, both together, neither; the sparse ones one after another."""
    pairs = [(1.0, 1.0), *((1.0, kv) for kv in keep_kv), *((act, 1.0) for act in keep_act), *both]
    return [Cell(shape, context, act, kv, dtype=dtype) for (act, kv), context in itertools.product(pairs, contexts)]


def run(
    out: Path,
    commit: str | None = None,
    *,
    shapes: Sequence[str] = SHAPES,
    contexts: Sequence[int] = CONTEXTS,
    keep_act: Sequence[float] = KEEP_ACT,
    keep_kv: Sequence[float] = KEEP_KV,
    both: Sequence[Sequence[float]] = BOTH,
    dtype: str = "bfloat16",
    layers: int | None = None,
    repeats: int = 15,
    rounds: int = TWICE,
    device: str = "cuda",
    process: Run = fresh,
) -> dict[str, Any]:
    """Time all cells, a fresh process for each shape, and write the calibration.

    layers: fewer than a shape has, for a try.
    """
    if len(set(contexts)) < 2:
        raise ValueError(f"`contexts` must be two or more, to tell bandwidth from costs, got {list(contexts)}")
    machine = torch.device(device)
    document: dict[str, Any] = {
        "format": FORMAT,
        "campaign": secrets.token_hex(6),
        **provenance(machine, commit),
        "copy_tb_per_s": round(process(copy_rate, machine), 3),
        "settings": {"repeats": repeats, "rounds": rounds, "layers": layers},
        "cells": [],
    }
    for shape in shapes:
        pairs = [(act, kv) for act, kv in both]
        order = cells_of(shape, contexts, keep_act, keep_kv, pairs, dtype)
        asked = Task(shape, tuple(order), device, layers, repeats=repeats, rounds=rounds)
        rows = process(bench_cells.run, asked)
        document["cells"] += [row for row in rows if "ms_per_token" in row]
        for row in rows:
            print(json.dumps(row), flush=True)
        document["fits"] = fits(document, dtype)
        write_atomically(out, json.dumps(document, indent=1) + "\n")
    return document


def fits(document: dict[str, Any], dtype: str) -> list[dict[str, Any]]:
    """Fit each shape that has been timed."""
    calibration = Calibration.of(document)
    return [calibration.fit(shape, 1, dtype).to_json() for shape in calibration.shapes]


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None, **json.loads((sys.argv[3:] or ["{}"])[0]))
