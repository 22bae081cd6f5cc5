"""Shares: a number of tokens divided among heads by score, exactly, in fp64, and made whole numbers.

In numpy, which stays in one thread: torch would wake all of them for a few thousand numbers, and wait for busy cores.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

TIE = 1e-6  # remainders this near to each other are equal: far above fp64's noise, far below what scores can mean


def fill(scores: Tensor, total: int, least: float, most: int) -> Tensor:
    """Divide `total` by water-filling: min(most, least + lambda * score), with the one lambda that spends it all.

    When every head with a score has `most`, the others share the rest equally. scores: float64 [head], at least 0.
    least: what a head without a score gets, at most total / heads. Gives float64 [head], which sums to `total`.
    """
    worth, heads = scores.numpy(), scores.numel()
    best = -np.sort(-worth)
    full = np.arange(heads)  # how many of the best heads have `most`
    others = best[::-1].cumsum()[::-1]  # the score of all others, summed from the smallest up
    left = np.maximum(total - full * float(most) - (heads - full) * least, 0)
    pace = np.divide(left, others, out=np.full(heads, np.inf), where=others > 0)  # their lambda
    fits = np.multiply(pace, best, out=np.full(heads, np.inf), where=others > 0) + least <= most * (1 + 1e-9)
    if fits.any():
        return torch.from_numpy(np.minimum(least + pace[fits.argmax()] * worth, most))
    scored = worth > 0
    bare = heads - int(scored.sum())
    return torch.from_numpy(np.where(scored, float(most), (total - (heads - bare) * most) / max(1, bare)))


def apportion(shares: Tensor, total: int, most: int, scores: Tensor | None = None) -> Tensor:
    """Round shares to whole numbers that sum to `total`: int64 [head], by the largest remainder, none above `most`.

    shares: float64 [head], which sums to `total`. Remainders within 1e-6 tie, and the lowest head comes first; given
    the scores that the shares follow, a head is never put before a tied one of a higher score (scores within a
    millionth of each other count as equal) that has the same whole part.
    """
    exact = shares.numpy()
    whole = np.minimum(np.floor(exact + TIE), most).astype(np.int64)
    tied = _groups(np.where(whole < most, exact - whole, -1.0), TIE)
    given = whole.copy()
    given[_order(tied)[: total - int(whole.sum())]] += 1
    if scores is not None:
        alike = _groups(np.log(np.maximum(scores.numpy(), np.finfo(np.float64).tiny)), TIE)
        given[_order(-whole, tied, alike)] = -np.sort(-given)
    return torch.from_numpy(given)


def _groups(values: np.ndarray, apart: float) -> np.ndarray:
    """Number values from the largest down; neighbours no further apart than this share a number: int64 [head]."""
    order = np.argsort(-values, kind="stable")
    groups = np.zeros(len(values), np.int64)
    groups[order[1:]] = np.cumsum(-np.diff(values[order]) > apart)
    return groups


def _order(*keys: np.ndarray) -> np.ndarray:
    """Sort heads by the first key, then by the next, then by index: int64 [head]."""
    return np.lexsort(keys[::-1])
