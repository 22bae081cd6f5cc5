"""A grid: which sequence positions hold which cells of a picture, in exact integer arithmetic.

Every family resizes, pads or crops a picture and cuts it into cells. Along one axis that is an affine map from pixels
of the decoded page to cells, ``u = (pixel * num + shift) / den``; kept as integers, the half-open rule of the cells is
exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from headscope.page import Box

Reads = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Axis:
    """One side of a picture: pixels of the page -> cells.

    pixels: length of the page's side. cells: how many cells the side has in the sequence. num, shift, den: the map
    above; what it leads to are the cells, or, with reads, the units that they are made from. reads: layer upon layer,
    from the page towards the sequence, the first and last unit of the layer below that each unit of this layer reads,
    both ascending; the last layer's units are the cells. A unit that nobody reads has no cell.
    """

    pixels: int
    cells: int
    num: int
    shift: int = 0
    den: int = 1
    reads: tuple[Reads, ...] = ()

    @classmethod
    def proportional(cls, pixels: int, cells: int) -> Axis:
        """The whole side, cut into equal cells: u = pixel * cells / pixels."""
        return cls(pixels, cells, num=cells, den=pixels)

    def span(self, low: float, high: float) -> range:
        """Give the cells that the half-open stretch [low, high) of pixels touches, clipped to the page.

        An empty stretch touches the cell it lies in. Outside the page, or in a part that was cropped or trimmed away:
        no cell.

        Raises ValueError when high is below low, or one of them is not a number.
        """
        if not low <= high:
            raise ValueError(f"`high` must not be below `low`, got {low} and {high}")
        if low >= self.pixels or high < 0 or (high == 0 and low < 0):
            return range(0)
        first = math.floor(self._cell(max(low, 0)))
        last = max(first, math.ceil(self._cell(min(high, self.pixels))) - 1)
        for layer in self.reads:
            touched = [unit for unit, (lo, hi) in enumerate(layer) if lo <= last and first <= hi]
            if not touched:
                return range(0)
            first, last = touched[0], touched[-1]
        return range(max(first, 0), min(last, self.cells - 1) + 1)

    def stretch(self, cell: int) -> tuple[float, float]:
        """Give the stretch of pixels [low, high) that a cell reads; with padding it may reach beyond the page."""
        low = high = range(self.cells)[cell]
        for layer in reversed(self.reads):
            low, high = layer[low][0], layer[high][1]
        return (low * self.den - self.shift) / self.num, ((high + 1) * self.den - self.shift) / self.num

    def _cell(self, pixel: float) -> Fraction:
        return (Fraction(pixel) * self.num + self.shift) / self.den


@dataclass(frozen=True)
class Grid:
    """A picture's cells in the sequence. positions: int64 [rows, columns], absolute indices of the prompt's tokens."""

    y: Axis
    x: Axis
    positions: Tensor

    def find(self, box: Box) -> Tensor:
        """Give the positions, ascending int64 [cells], of the cells that an axis-aligned box of page pixels touches."""
        x0, y0, x1, y1 = box
        rows, columns = self.y.span(y0, y1), self.x.span(x0, x1)
        if not rows or not columns:
            return torch.empty(0, dtype=torch.int64)
        return self.positions[rows.start : rows.stop, columns.start : columns.stop].reshape(-1)


@dataclass(frozen=True)
class Picture:
    """Where one picture (or one video frame) lies in the prompt.

    fine: the cells that hits count. base: the coarse thumbnail of families that send one, else None.
    run: (start, stop) of all positions that belong to it, separators included.
    """

    fine: Grid
    base: Grid | None
    run: tuple[int, int]
