"""Budgets in the files of other projects. What such a file cannot say is lost: each writer says what it keeps.

A **share** is the part of the prompt beyond the window that a KV head keeps: 0 keeps the window alone, 1 the whole
prompt. A budget for any prompt length (`prompt` is None) knows no whole: there the largest head has share 1.
"""

from __future__ import annotations

import difflib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headscope.budget.budget import Budget
from headscope.files import write_atomically
from headscope.scores.formats import duoattention
from headscope.scores.formats.lukv import ROWS, keep_shares
from headscope.scores.score_file import is_count


def export(budget: Budget | str | Path, path: str | Path, to: str) -> None:
    """Write a budget as another project's file (DuoAttention: a folder), whole or not at all. to: a key of EXPORTS."""
    if to not in EXPORTS:
        near = difflib.get_close_matches(str(to).lower(), EXPORTS, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"`to` must be one of {', '.join(EXPORTS)}, got {to!r}{hint}")
    EXPORTS[to](as_budget(budget), path)


def as_budget(budget: Budget | str | Path) -> Budget:
    """Give a Budget as it is, and load a path: for every function that takes a budget."""
    if isinstance(budget, Budget):
        return budget
    if isinstance(budget, str | Path):
        return Budget.load(budget)
    raise ValueError(f"`budget` must be a Budget or the path of a budget file, got {type(budget).__name__}")


def shares(budget: Budget) -> Tensor:
    """Give the share of each head: float64 [layer, kv], 0 to 1. A prompt no longer than the window is kept whole: 1."""
    beyond = (budget.kept - budget.window).clamp_min(0).double()
    if budget.prompt is not None:
        whole = budget.prompt - budget.window
        return beyond / whole if whole > 0 else torch.ones_like(beyond)
    return beyond / beyond.max().clamp_min(1)


def write_duoattention(budget: Budget, path: str | Path) -> None:
    """Write DuoAttention's folder (arXiv:2410.10819): full_attention_heads.tsv and config.json.

    The table has the shares, layers x KV heads. DuoAttention turns them into two kinds of heads, the largest to keep
    everything, the others to keep `sink_size` first and `recent_size` last tokens; recent_size is the window, and
    sink_size 0, since a budget sets no first tokens apart.
    """
    rows = ("\t".join(map(repr, row)) for row in shares(budget).tolist())
    config = {"sink_size": 0, "recent_size": budget.window}
    write_atomically(Path(path) / duoattention.TABLE, "".join(f"{row}\n" for row in rows))
    write_atomically(Path(path) / duoattention.CONFIG, json.dumps(config) + "\n")


def write_lukv(budget: Budget, path: str | Path) -> None:
    """Write LU-KV's array (arXiv:2602.08585), float64 [99, layer, kv]: row r prunes (r + 1) % of the prompt.

    An entry is the part of the prompt that the head loses there. A row keeps w + f (kept - w) tokens of each head, none
    above the prompt, with w the window and the one f that spends the row's tokens; so the row of the budget's own total
    is the budget. Rows too poor for the window keep the same of every head. prompt None: as for an endless prompt.
    """
    window = 0.0 if budget.prompt is None else min(budget.window / budget.prompt, 1.0)
    beyond = (budget.kept - budget.window).clamp_min(0).double().numpy()
    kept = np.stack([_curve_row(beyond, window, 1 - row / 100) for row in range(1, ROWS + 1)])
    buffer = io.BytesIO()
    np.save(buffer, 1 - kept)
    write_atomically(path, buffer.getvalue())


def _curve_row(beyond: np.ndarray, window: float, mean: float) -> np.ndarray:
    """Give the parts kept [layer, kv] that have this mean, the part of the window in each."""
    if mean <= window:
        return np.full(beyond.shape, mean)
    free = keep_shares(beyond.reshape(-1), (mean - window) / (1 - window))
    return window + (1 - window) * free.reshape(beyond.shape)


def write_layers(budget: Budget, path: str | Path) -> None:
    """Write one count a layer, `[96, 80, 64]`: the tokens that each of its heads keeps, as PyramidKV plans them.

    A layer's count is the mean of its KV heads (arXiv:2406.02069 has no counts by head), rounded so that all layers
    together keep what the budget keeps, to within half a token a head.
    """
    means = budget.per_layer
    counts = means.floor().to(torch.int64)
    left = round(float(means.sum())) - int(counts.sum())
    counts[(counts - means).sort(stable=True).indices[:left]] += 1  # the largest fractions, of equal ones the first
    write_atomically(path, json.dumps(counts.tolist()) + "\n")


def write_heads(budget: Budget, path: str | Path) -> None:
    """Write QRHead's list, `[["13-2", 0.41], ..]`: all query heads, those that keep most first.

    A reader takes the first k (arXiv:2506.09944). The number is the share of the head's KV head. Query heads that
    share a KV head stand together; of equal ones the lowest (layer, head) comes first.
    """
    heads: Any = budget.model.get("heads")
    if not is_count(heads) or heads % budget.kv_heads:
        raise ValueError(
            f"`budget` must know its model's query heads, a multiple of its {budget.kv_heads} KV heads, for a list of "
            f"heads, got {heads!r}; allocate it from scores, or add `heads` to the geometry of the budget file"
        )
    share = shares(budget).repeat_interleave(heads // budget.kv_heads, 1)
    order = share.flatten().sort(descending=True, stable=True).indices.tolist()
    ranking = [[f"{place // heads}-{place % heads}", float(share[place // heads, place % heads])] for place in order]
    write_atomically(path, json.dumps(ranking) + "\n")


EXPORTS: dict[str, Callable[[Budget, str | Path], None]] = {
    "duoattention": write_duoattention,
    "lukv": write_lukv,
    "layers": write_layers,
    "qrhead": write_heads,
}
