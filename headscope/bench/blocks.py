"""Blocks: measurements repeated as wholes, in another order each time, and what they say together."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TypeVar

Item = TypeVar("Item")
# Student's t for a 95 % interval, by degrees of freedom (blocks less 1).
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
MOST = len(STUDENT) + 1


def check_blocks(blocks: int) -> int:
    """Refuse a number of blocks that gives no interval here."""
    if not 1 <= blocks <= MOST:
        raise ValueError(f"`blocks` must be a whole number from 1 to {MOST}, got {blocks}")
    return blocks


def rotated(items: Sequence[Item], block: int) -> list[Item]:
    """Give the order of a block: each one begins with the next item."""
    first = block % len(items) if items else 0
    return [*items[first:], *items[:first]]


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Give the mean of some blocks and its 95 % interval by Student's t; one block has none (its bounds are NaN)."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, math.nan, math.nan
    half = STUDENT[len(values) - 2] * statistics.stdev(values) / math.sqrt(len(values))
    return mean, mean - half, mean + half


def zero(advantages: Mapping[int, float]) -> float | None:
    """Give the context at which an advantage [context] turns positive, on the line between its neighbours.

    None where it is positive, or not, at all contexts. Of several turns, as noise makes them, the mean.
    """
    points = sorted(advantages.items())
    turns = [
        first + (second - first) * -low / (high - low)
        for (first, low), (second, high) in itertools.pairwise(points)
        if low <= 0 < high
    ]
    return statistics.fmean(turns) if turns else None


def said(bounds: tuple[float, float, float], digits: int = 5) -> dict[str, float | None]:
    """Give a mean and its interval as plain data; what is no number is null."""
    return {
        name: None if math.isnan(value) else round(value, digits)
        for name, value in zip(("mean", "low", "high"), bounds, strict=True)
    }


def turning(advantages: Mapping[int, float]) -> float | None:
    """Give where the line through all advantages is zero, beyond them or not; None where it does not rise."""
    contexts, values = list(advantages), list(advantages.values())
    if len(set(contexts)) < 2:
        return None
    slope, start = statistics.linear_regression(contexts, values)
    return -start / slope if slope > 0 else None
