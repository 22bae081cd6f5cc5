"""A matrix of heads put together from single ones: none missing, none twice, none beyond the geometry."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

SHOWN = 5  # heads that an error names


@dataclass(frozen=True)
class Expected:
    """What a file must hold. file: its path, for errors. layers, heads, kv_heads: None is whatever the file has."""

    file: str
    layers: int | None = None
    heads: int | None = None
    kv_heads: int | None = None

    def error(self, expected: str, found: str) -> ValueError:
        """Make the error that names the file, what it should hold and what it holds."""
        return ValueError(f"`{self.file}`: expected {expected}, found {found}")

    def check(self, shape: tuple[int, ...], kv: bool) -> None:
        """Refuse a matrix of another geometry; kv: its columns are KV heads."""
        layers, width = shape
        wanted = (self.layers or layers, (self.kv_heads if kv else self.heads) or width)
        if wanted != shape:
            noun = "KV heads" if kv else "heads"
            raise self.error(f"{wanted[0]} layers x {wanted[1]} {noun}", f"{layers} x {width}")


def assemble(scores: Iterable[tuple[int, int, float]], expected: Expected, kv: bool = False) -> np.ndarray:
    """Place (layer, head, score) by their numbers, never by their order, into float64 [layer, head]."""
    placed: dict[tuple[int, int], float] = {}
    for layer, head, score in scores:
        if (layer, head) in placed:
            raise expected.error("every head once", f"{layer}-{head} twice")
        placed[layer, head] = score
    if not placed:
        raise expected.error("a score for every (layer, head)", "none")
    layers, width = (1 + max(place[axis] for place in placed) for axis in (0, 1))
    wanted = (expected.layers or layers, (expected.kv_heads if kv else expected.heads) or width)
    if layers > wanted[0] or width > wanted[1]:
        found = f"{layers} x {width} ({len(placed)} heads)"
        raise expected.error(f"{wanted[0]} layers x {wanted[1]} {'KV ' if kv else ''}heads", found)
    if len(placed) < wanted[0] * wanted[1]:
        raise _missing(placed, wanted, expected)
    matrix = np.empty(wanted)
    for place, score in placed.items():
        matrix[place] = score
    return matrix


def _missing(placed: dict[tuple[int, int], float], wanted: tuple[int, int], expected: Expected) -> ValueError:
    absent = ((i, j) for i in range(wanted[0]) for j in range(wanted[1]) if (i, j) not in placed)
    names = ", ".join(f"{layer}-{head}" for layer, head in islice(absent, SHOWN))
    total = wanted[0] * wanted[1]
    more = " and more" if total - len(placed) > SHOWN else ""
    return expected.error(f"{wanted[0]} layers x {wanted[1]} heads = {total}", f"{len(placed)}; missing: {names}{more}")


def number(value: Any, name: str, expected: Expected) -> float:
    """Give a file's score as a float; text, true, false and null are no scores."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise expected.error(f"a number for head {name}", repr(value))
    try:
        return float(value)
    except OverflowError:
        return math.inf  # a whole number beyond float64: refused with the infinities, where scores are made


def rows_of(rows: Sequence[Any], expected: Expected) -> np.ndarray:
    """Give nested lists of numbers, all of one length, as float64 [layer, head]."""
    width = len(rows[0])
    for layer, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != width or not width:
            size = len(row) if isinstance(row, list) else repr(row)
            raise expected.error(f"{width or 'some'} heads in layer {layer}, as in layer 0", f"{size}")
    return np.array(
        [[number(value, f"{i}-{j}", expected) for j, value in enumerate(row)] for i, row in enumerate(rows)]
    )
