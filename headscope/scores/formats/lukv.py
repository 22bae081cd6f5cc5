"""LU-KV: an npy array [99, layer, kv] of budgets: the share of each KV head to prune, row r pruning (r + 1) % of all.

Budgets are not scores. Reading takes the mean kept share over the 99 rows: a head that is kept longer scores higher.
Writing shares out each row's (99 - r) % in proportion to the sums of the query heads, no head above all of itself and
the rest to the others. So the order of heads survives both ways (heads that are full in every row tie), the numbers do
not.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

from headscope.files import write_atomically
from headscope.scores.formats.matrix import Expected
from headscope.scores.head_scores import HeadScores

MAGIC = b"\x93NUMPY"
ROWS = 99


def read(path: str | Path, expected: Expected) -> tuple[np.ndarray, dict[str, Any]]:
    """Give float64 [layer, kv], the mean share kept over the 99 rows."""
    try:
        pruned = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise expected.error(f"a whole npy array [{ROWS}, layers, KV heads]", f"a broken one ({error})") from None
    if pruned.ndim != 3 or pruned.shape[0] != ROWS or 0 in pruned.shape or pruned.dtype.kind not in "fiu":
        raise expected.error(f"numbers [{ROWS}, layers, KV heads]", f"{pruned.dtype} {list(pruned.shape)}")
    expected.check(pruned.shape[1:], kv=True)
    if len(bad := np.argwhere(~((pruned >= 0) & (pruned <= 1)))):
        row, layer, head = bad[0].tolist()
        place = f"row {row}, layer {layer}, KV head {head}"
        raise expected.error("pruned shares from 0 to 1", f"{pruned[row, layer, head]} at {place}")
    return 1 - pruned.astype(np.float64).mean(axis=0), {"format": "lukv", "heads": "kv"}


def write(scores: HeadScores, path: str | Path) -> None:
    """Write the array, float64. All-zero scores order no heads: a ValueError."""
    weights = scores.kv().double().numpy()
    if not weights.max() > 0:
        raise ValueError("`scores` must have a head above 0 for LU-KV's budgets, got all zeros")
    kept = np.stack([keep_shares(weights.reshape(-1), 1 - row / 100) for row in range(1, ROWS + 1)])
    buffer = io.BytesIO()
    np.save(buffer, (1 - kept).reshape(ROWS, *weights.shape))
    write_atomically(path, buffer.getvalue())


def keep_shares(weights: np.ndarray, mean: float) -> np.ndarray:
    """Give shares of the given mean, float64 [head], in proportion to the weights and none above 1 (water-filling)."""
    shares, left, free = np.zeros(len(weights)), mean * len(weights), np.ones(len(weights), bool)
    while free.any():
        pool = weights[free].sum()
        wanted = weights * (left / pool) if pool > 0 else np.full(len(weights), left / free.sum())
        full = free & (wanted >= 1)
        if not full.any():
            shares[free] = wanted[free]
            break
        shares[full] = 1
        left -= full.sum()
        free &= ~full
    return shares.clip(0, 1)
