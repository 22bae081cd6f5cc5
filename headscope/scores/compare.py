"""Comparison: how far two score files of one geometry agree about the ranking of heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headscope.scores.head_scores import HeadScores
from headscope.scores.merge import differences
from headscope.scores.stability import count_of, ranks, spearman

MOVES = 10


@dataclass(frozen=True)
class Overlap:
    """How many heads two lists of the k best have in common."""

    k: int
    shared: int

    @property
    def share(self) -> float:
        """The shared part of the k heads."""
        return self.shared / self.k


@dataclass(frozen=True)
class Move:
    """One head's rank (1 is the best; equal scores share the average of their ranks) and score in both files."""

    layer: int
    head: int
    rank_a: float
    rank_b: float
    score_a: float
    score_b: float


@dataclass(frozen=True)
class Difference:
    """What `diff` found.

    rank_correlation: Spearman's, None where one file scores all heads alike. settings that differ: (key, a, b).
    """

    rank_correlation: float | None
    overlaps: tuple[Overlap, ...]
    moves: tuple[Move, ...]
    settings: tuple[tuple[str, Any, Any], ...]

    def __str__(self) -> str:
        rho = "undefined" if self.rank_correlation is None else f"{self.rank_correlation:.4f}"
        lines = [f"rank correlation of all heads: {rho}"]
        lines += [f"top {at.k}: {at.shared} shared ({at.share:.0%})" for at in self.overlaps]
        lines += [
            f"layer {move.layer} head {move.head}: rank {move.rank_a:g} -> {move.rank_b:g}, "
            f"score {move.score_a:.6g} -> {move.score_b:.6g}"
            for move in self.moves
        ]
        return "\n".join(lines + [f"{key}: {a!r} -> {b!r}" for key, a, b in self.settings])


def diff(
    a: HeadScores | str | Path, b: HeadScores | str | Path, k: int | Sequence[int] | None = None, moves: int = MOVES
) -> Difference:
    """Compare two files of one geometry. k: how many best heads to compare; None: 5 % and 10 % of all heads.

    moves: how many of the largest changes of rank to list. Another geometry, or a `k` or `moves` that no list can have,
    is a ValueError.
    """
    if moves < 0:
        raise ValueError(f"`moves` must be at least 0, got {moves}")
    left, right = (scores if isinstance(scores, HeadScores) else HeadScores.load(scores) for scores in (a, b))
    right.check(left.geometry)
    x, y = left.values.numpy().reshape(-1), right.values.numpy().reshape(-1)
    if x.size != y.size:
        raise ValueError(f"`diff` needs one score a head in both files, found {x.size} and {y.size}")
    correlation = spearman(x, y)
    overlaps = tuple(Overlap(count, _shared(left, right, count)) for count in _counts(k, x.size))
    settings = differences({"model": left.model, "probe": left.probe}, {"model": right.model, "probe": right.probe})
    return Difference(correlation, overlaps, _moves(x, y, left.heads, moves), tuple(settings))


def _counts(k: int | Sequence[int] | None, heads: int) -> list[int]:
    if k is None:
        return sorted({count_of(0.05, heads), count_of(0.10, heads)})
    counts = [k] if isinstance(k, int) else list(k)
    if bad := [count for count in counts if not 1 <= count <= heads]:
        raise ValueError(f"`k` must be 1 to {heads} heads, got {bad[0]}")
    return counts


def _shared(a: HeadScores, b: HeadScores, k: int) -> int:
    best = [{(layer, head) for layer, head, _ in scores.top(k)} for scores in (a, b)]
    return len(best[0] & best[1])


def _moves(x: np.ndarray, y: np.ndarray, heads: int, count: int) -> tuple[Move, ...]:
    rank_a, rank_b = ranks(-x), ranks(-y)
    order = np.argsort(-np.abs(rank_a - rank_b), kind="stable")[:count]
    moved = [int(place) for place in order if rank_a[place] != rank_b[place]]
    return tuple(
        Move(place // heads, place % heads, *(float(found[place]) for found in (rank_a, rank_b, x, y)))
        for place in moved
    )
