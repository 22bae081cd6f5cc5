"""The crossing: KV selection, activation sparsity, both and neither against the context: ``headscope bench crossing``.

    python -m headscope.bench.crossing OUT [COMMIT [SETTINGS]]

SETTINGS: JSON of the keywords of `run`. Random weights and caches, one graphed runtime for all branches, fresh
processes, blocks that each begin with the next branch. Where both branches take the same time is measured at contexts
around the prediction of a calibration, none of whose cells belong to this campaign.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import secrets
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from headscope.accounting.calibration import Calibration
from headscope.accounting.cell import Cell
from headscope.bench import cells as bench_cells
from headscope.bench import crossing_summary
from headscope.bench.attentions import ATTENTIONS
from headscope.bench.blocks import check_blocks, turning, zero
from headscope.bench.campaign import APART, GRID, Campaign, contexts_around, near
from headscope.bench.cells import Task
from headscope.bench.fresh import Run, fresh
from headscope.bench.provenance import provenance
from headscope.bench.timer import copy_rate
from headscope.files import write_atomically

SHAPES = ("llama-3.1-8b", "llama-3.2-3b")
PAIRS = ((0.5, 0.3), (0.7, 0.3), (0.5, 0.5))  # keep_act, keep_kv; the first is timed at all contexts
CONTEXTS = tuple(2**power for power in range(11, 18))
AROUND = (-16384, 0, 16384)  # tokens from where a crossing is predicted
BASELINES = ("masked", "fused", "sdpa", "split", "fa3")
BASELINE_CONTEXTS = (2048, 8192, 32768, 131072)


def run(
    out: Path,
    commit: str | None = None,
    *,
    calibration: str | Path | None = None,
    shapes: Sequence[str] = SHAPES,
    pairs: Sequence[Sequence[float]] = PAIRS,
    contexts: Sequence[int] = CONTEXTS,
    around: Sequence[int] = AROUND,
    blocks: int = 5,
    apart: str = "cell",
    baselines: Sequence[str] = BASELINES,
    baseline_contexts: Sequence[int] = BASELINE_CONTEXTS,
    dtype: str = "bfloat16",
    layers: int | None = None,
    repeats: int = 15,
    limit_s: float | None = None,
    device: str = "cuda",
    process: Run = fresh,
) -> dict[str, Any]:
    """Time all cells in blocks, then the baselines on the first shape, and write them, after each piece anew.

    calibration: a file of `headscope bytes calibrate` that predicts the crossings; None: they are only measured.
    around: contexts of each pair, from where it is predicted to cross. apart: what has a process of its own, see
    `Campaign`. layers: fewer than a shape has, for a try. limit_s: begin nothing after so many seconds.
    """
    check_blocks(blocks)
    if apart not in APART:
        raise ValueError(f"`apart` must be one of {', '.join(APART)}, got {apart!r}")
    if unknown := set(baselines) - set(ATTENTIONS):
        raise ValueError(f"`baselines` must be some of {', '.join(ATTENTIONS)}, got {', '.join(sorted(unknown))}")
    known = None if calibration is None else Calibration.load(calibration)
    machine = torch.device(device)
    until = time.monotonic() + (limit_s or float("inf"))
    keeps = [(float(act), float(kv)) for act, kv in pairs]
    campaign = Campaign(keeps, contexts, device, dtype, layers, apart, repeats, process, until)
    document: dict[str, Any] = {
        "bench": "crossing",
        "campaign": secrets.token_hex(6),
        **provenance(machine, commit),
        "copy_tb_per_s": round(process(copy_rate, machine), 3),
        "settings": {
            "pairs": [list(pair) for pair in keeps],
            "blocks": blocks,
            "apart": apart,
            "repeats": repeats,
            "dtype": dtype,
            "layers": layers,
        },
        "calibration": None if known is None else _told(known),
        "cells": [],
        "baseline_cells": [],
    }
    if known is not None and known.device != (here := document["hardware"].get("gpu") or document["hardware"]["cpu"]):
        raise ValueError(f"`calibration` must be of this machine, {here}, {calibration} is of {known.device}")
    for shape in shapes:
        campaign.near |= near(campaign, shape, around, known)
        _check(known, campaign, document, shape)
    for block, shape in itertools.product(range(blocks), shapes):
        _time(campaign, shape, block, campaign.cells(shape), document, out, known)
        if not block and (added := _look_again(campaign, shape, document)):
            _check(known, campaign, document, shape)
            _time(campaign, shape, block, added, document, out, known)
    _baselines(campaign, shapes[0], baselines, baseline_contexts, document, out, known)
    return document


def _told(calibration: Calibration) -> dict[str, Any]:
    path = Path(str(calibration.origin))
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return {"file": path.name, "sha256": sha256, "campaign": calibration.campaign, "commit": calibration.commit}


def _check(known: Calibration | None, campaign: Campaign, document: dict[str, Any], shape: str) -> None:
    if known is not None:
        known.check_apart(document["campaign"], campaign.cells(shape)).fit(shape, 1, campaign.dtype)


def _look_again(campaign: Campaign, shape: str, document: dict[str, Any]) -> list[Cell]:
    """Where the first block shows no crossing, go to where its line leads; give the cells that come in."""
    before = set(campaign.cells(shape))
    for act, kv in campaign.pairs:
        found = crossing_summary.advantages(document["cells"], shape, act, kv).get(0, {})
        if len(found) > 1 and zero(found) is None and (at := turning(found)) is not None:
            before_it = campaign.near[shape, (act, kv)]
            campaign.near[shape, (act, kv)] = sorted({*before_it, *contexts_around(at, (-2 * GRID, 2 * GRID))})
    return [cell for cell in campaign.cells(shape) if cell not in before]


def _time(
    campaign: Campaign,
    shape: str,
    block: int,
    cells: Sequence[Cell],
    document: dict[str, Any],
    out: Path,
    known: Calibration | None,
) -> None:
    for row in campaign.block(shape, block, cells):
        document["cells"].append(row)
        print(json.dumps(row), flush=True)
    _write(document, out, known)


def _baselines(
    campaign: Campaign,
    shape: str,
    names: Sequence[str],
    contexts: Sequence[int],
    document: dict[str, Any],
    out: Path,
    known: Calibration | None,
) -> None:
    """Time the same window against the whole cache, both read by each attention; a process for each of them."""
    window = campaign.pairs[0][1]
    cells = [Cell(shape, context, 1.0, kv, dtype=campaign.dtype) for context in contexts for kv in (1.0, window)]
    for name in names:
        if not cells or time.monotonic() > campaign.until:
            return
        asked = Task(shape, tuple(cells), campaign.device, campaign.layers, name, min(7, campaign.repeats))
        for row in campaign.process(bench_cells.run, asked):
            document["baseline_cells"].append(row)
            print(json.dumps(row), flush=True)
        _write(document, out, known)


def _write(document: dict[str, Any], out: Path, known: Calibration | None) -> None:
    document |= crossing_summary.of(document, known)
    write_atomically(out, json.dumps(document, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None, **json.loads((sys.argv[3:] or ["{}"])[0]))
