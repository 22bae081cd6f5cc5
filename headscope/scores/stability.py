"""Stability: how far a ranking of heads can be trusted, found by drawing the pages again.

Pure numpy. Sums run in page order and element by element, never as a matrix product: a product's last bits depend on
the machine, and a merged file must equal the file of one run.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

SEED = 0
HALVINGS = 100
RESAMPLES = 1000
BLOCK = 512  # heads summed at a time: 1000 draws x 512 heads of float64 are 4 MB, whatever the model


def summarise(pages: np.ndarray, first_key: np.ndarray, first_cell: np.ndarray, credited: int) -> dict[str, Any]:
    """Say how stable and how concentrated the scores are. What a few pages cannot tell is None, never NaN.

    pages: float64 [page, layer, head]. first_key, first_cell: int64 [layer, head], totals. credited: tokens, in all
    pages.
    """
    values = mean(pages)
    flat = pages.reshape(len(pages), values.size)
    return {
        "split_half": rounded(split_half(flat)),
        "halvings": HALVINGS,
        "resamples": RESAMPLES,
        "share_top_5_percent": rounded(concentration(values, 0.05)),
        "share_top_10_percent": rounded(concentration(values, 0.10)),
        "share_first_key": rounded(_share(first_key, credited)),
        "share_first_cell": rounded(_share(first_cell, credited)),
        "top": _top_heads(flat, values) if len(pages) else [],
    }


def mean(pages: np.ndarray) -> np.ndarray:
    """Give the mean of float64 [page, layer, head] over pages, summed in page order; zeros where there is no page."""
    flat = pages.reshape(len(pages), math.prod(pages.shape[1:]))
    return weighted_sums(np.ones((1, len(pages))), flat).reshape(pages.shape[1:]) / max(1, len(pages))


def ranks(values: np.ndarray) -> np.ndarray:
    """Give ranks 1..n, lowest value first, float64 [n]; equal values share the average of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse.reshape(-1)]


def spearman(a: np.ndarray, b: np.ndarray) -> float | None:
    """Give the rank correlation of two float [n]; None where all values of one are equal."""
    centre = (len(a) + 1) / 2
    x, y = ranks(a) - centre, ranks(b) - centre
    scale = np.sqrt((x * x).sum() * (y * y).sum())
    return float((x * y).sum() / scale) if scale > 0 else None


def split_half(pages: np.ndarray, halvings: int = HALVINGS, seed: int = SEED) -> float | None:
    """Give the mean rank correlation of random halves of the pages, float64 [page, head]; None below two pages."""
    if len(pages) < 2:
        return None
    generator = np.random.default_rng(seed)
    first = generator.permuted(np.tile(np.arange(len(pages)) < len(pages) // 2, (halvings, 1)), axis=1)
    halves = zip(weighted_sums(first, pages), weighted_sums(~first, pages), strict=True)
    found = [correlation for a, b in halves if (correlation := spearman(a, b)) is not None]
    return float(np.mean(found)) if found else None


def intervals(pages: np.ndarray, resamples: int = RESAMPLES, seed: int = SEED) -> np.ndarray | None:
    """Give the 95 % page-bootstrap interval of each head's mean, float64 [2, head]; None below two pages."""
    count = len(pages)
    if count < 2:
        return None
    drawn = np.random.default_rng(seed).integers(count, size=(resamples, count))
    times = np.stack([np.bincount(row, minlength=count) for row in drawn])
    return np.quantile(weighted_sums(times, pages) / count, [0.025, 0.975], axis=0)


def weighted_sums(weights: np.ndarray, pages: np.ndarray) -> np.ndarray:
    """Give weights [draw, page] times pages [page, head] as float64 [draw, head], each added up in page order."""
    weights = weights.astype(np.float64)
    total = np.zeros((len(weights), pages.shape[1]))
    for start in range(0, pages.shape[1], BLOCK):
        block = np.zeros_like(total[:, start : start + BLOCK])
        for page in range(len(pages)):
            block += weights[:, page, None] * pages[page, start : start + BLOCK]
        total[:, start : start + BLOCK] = block
    return total


def concentration(values: np.ndarray, share: float) -> float | None:
    """Give the part of the total that the best `share` of all heads hold; None when the total is zero."""
    best = np.sort(values.reshape(-1))[::-1]
    total = best.sum()
    return float(best[: count_of(share, best.size)].sum() / total) if total > 0 else None


def count_of(share: float, heads: int) -> int:
    """Give how many heads a share of all heads is: at least one."""
    return max(1, round(share * heads))


def rounded(value: float | None) -> float | None:
    """Keep six digits: the seventh is noise of the drawing."""
    return None if value is None else float(f"{value:.6g}")


def _share(counts: np.ndarray, credited: int) -> float | None:
    return int(counts.sum()) / (credited * counts.size) if credited and counts.size else None


def _top_heads(flat: np.ndarray, values: np.ndarray) -> list[dict[str, Any]]:
    count = min(max(10, count_of(0.1, values.size)), 64, values.size)
    best = np.argsort(-values.reshape(-1).astype(np.float32), kind="stable")[:count]  # as `HeadScores.top` orders them
    bounds = intervals(flat[:, best])
    return [
        {
            "layer": int(head) // values.shape[1],
            "head": int(head) % values.shape[1],
            "score": rounded(values.reshape(-1)[head]),
            "interval": None if bounds is None else [rounded(bound) for bound in bounds[:, place]],
        }
        for place, head in enumerate(best)
    ]
