"""A grid of settings, each a part of the activations and of the cache, timed on one shape in blocks, without a model.

    python -m headscope.bench.grid OUT [COMMIT [SETTINGS]]

SETTINGS: JSON of the keywords of `run`. For `headscope bench quality-budget times=OUT`, where the model is scored on
one machine and its shape timed on another: a step's time does not depend on what the weights are.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from headscope.accounting.cell import Cell
from headscope.accounting.crossover import Keep
from headscope.bench import cells as bench_cells
from headscope.bench.blocks import check_blocks, rotated
from headscope.bench.cells import Row, Task
from headscope.bench.fresh import Run, fresh
from headscope.bench.provenance import provenance
from headscope.files import write_atomically

KEEP_ACT = (1.0, 0.7, 0.6, 0.5)  # ByteCross's
KEEP_KV = (1.0, 0.3, 0.2, 0.1)


@dataclass(frozen=True)
class GridSteps:
    """Steps as a grid's file has them: block 0 is the screen, those after it time what was chosen again."""

    document: dict[str, Any]

    @classmethod
    def load(cls, path: Path) -> GridSteps:
        """Read a file of this bench; ValueError for anything else."""
        document = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(document, dict) or document.get("bench") != "grid":
            raise ValueError(f"`times` must be a file of `python -m headscope.bench.grid`, {path} is none")
        return cls(document)

    @property
    def context(self) -> int:
        """Tokens of the cache that steps were timed on."""
        return int(self.document["context"])

    @property
    def told(self) -> dict[str, Any]:
        """Say where the times come from."""
        return {name: self.document[name] for name in ("hardware", "software", "commit", "shape", "dtype")}

    def screen(self, keep: Keep) -> Row:
        """Give a setting's step of the first block."""
        row = self._row(keep, 0)
        return {name: row[name] for name in ("ms_per_token", "spread_ms", "kept") if name in row}

    def again(self, keeps: Sequence[Keep], blocks: int) -> dict[Keep, list[float]]:
        """Give the times of settings in the other blocks."""
        if blocks > (most := self.document["blocks"]):
            raise ValueError(f"`blocks` must be at most the {most} that `times` has, got {blocks}")
        return {
            keep: [float(self._row(keep, block)["ms_per_token"]) for block in range(1, blocks + 1)] for keep in keeps
        }

    def _row(self, keep: Keep, block: int) -> Row:
        for row in self.document["cells"]:
            if (row["keep_act"], row["keep_kv"], row["block"]) == (keep.act, keep.kv, block) and "ms_per_token" in row:
                return row
        raise ValueError(
            f"`times` must have every setting of the grid in each block, keeping {keep.act:g} of activations and "
            f"{keep.kv:g} of the cache is missing in block {block}"
        )


def run(
    out: Path,
    commit: str | None = None,
    *,
    shape: str = "llama-3.1-8b",
    context: int = 32768,
    keep_act: Sequence[float] = KEEP_ACT,
    keep_kv: Sequence[float] = KEEP_KV,
    blocks: int = 5,
    dtype: str = "bfloat16",
    layers: int | None = None,
    repeats: int = 15,
    device: str = "cuda",
    process: Run = fresh,
) -> dict[str, Any]:
    """Time all settings in a screen and in blocks, a fresh process each, and write them after each block anew."""
    check_blocks(blocks)
    pairs = itertools.product(sorted({1.0, *keep_act}), sorted({1.0, *keep_kv}))
    cells = [Cell(shape, context, float(act), float(kv), dtype=dtype) for act, kv in pairs]
    document: dict[str, Any] = {
        "bench": "grid",
        **provenance(torch.device(device), commit),
        "shape": shape,
        "context": context,
        "dtype": dtype,
        "blocks": blocks,
        "cells": [],
    }
    for block in range(blocks + 1):
        order = rotated(cells, block * max(1, len(cells) // (blocks + 1)))
        for row in process(bench_cells.run, Task(shape, tuple(order), device, layers, repeats=repeats)):
            document["cells"].append(row | {"block": block})
            print(json.dumps(document["cells"][-1]), flush=True)
        write_atomically(out, json.dumps(document, indent=1) + "\n")
    return document


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None, **json.loads((sys.argv[3:] or ["{}"])[0]))
