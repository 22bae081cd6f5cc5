"""A campaign: which cells a crossing is measured with, in which order, and at which contexts it is looked for."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from headscope.accounting.calibration import Calibration
from headscope.accounting.cell import Cell
from headscope.accounting.crossover import Keep
from headscope.accounting.prediction import from_fit
from headscope.bench import cells as bench_cells
from headscope.bench.blocks import rotated
from headscope.bench.cells import Row, Task, account_of
from headscope.bench.fresh import Run

GRID = 4096  # contexts around a crossing are multiples of it
MOST = 131072
APART = ("cell", "branch", "block")
WITHOUT = 0.7  # of the byte crossover: where a crossing is looked for without a calibration


@dataclass
class Campaign:
    """What is timed, and how. apart: what has a process of its own: each cell, each branch of a block, or each block.

    near: by shape and pair, the contexts around its crossing. until: a monotonic time after which nothing is begun.
    """

    pairs: Sequence[tuple[float, float]]
    contexts: Sequence[int]
    device: str
    dtype: str
    layers: int | None
    apart: str
    repeats: int
    process: Run
    until: float
    near: dict[tuple[str, tuple[float, float]], list[int]] = field(default_factory=dict)

    def cells(self, shape: str) -> list[Cell]:
        """List a shape's cells: each branch at its contexts, each cell once."""
        act, kv = self.pairs[0]
        found: dict[tuple[float, float], set[int]] = {
            branch: set(self.contexts) for branch in ((1.0, 1.0), (1.0, kv), (act, 1.0), (act, kv))
        }
        for pair in self.pairs:
            for branch in ((1.0, pair[1]), (pair[0], 1.0)):
                found.setdefault(branch, set()).update(self.near.get((shape, pair), []))
        return [
            Cell(shape, context, *branch, dtype=self.dtype) for branch in found for context in sorted(found[branch])
        ]

    def block(self, shape: str, block: int, cells: Sequence[Cell]) -> Iterator[Row]:
        """Time one block of some cells; each block begins with the next branch, and every second one at the far end."""
        groups = [list(group) for _, group in itertools.groupby(cells, key=lambda cell: cell.keep)]
        ordered = [group[:: -1 if block % 2 else 1] for group in rotated(groups, block)]
        pieces = {
            "block": [[cell for group in ordered for cell in group]],
            "branch": ordered,
            "cell": [[cell] for group in ordered for cell in group],
        }[self.apart]
        for piece in pieces:
            if time.monotonic() > self.until:
                return
            asked = Task(shape, tuple(piece), self.device, self.layers, repeats=self.repeats)
            for row in self.process(bench_cells.run, asked):
                yield row | {"block": block}


def near(
    campaign: Campaign, shape: str, around: Sequence[int], known: Calibration | None
) -> dict[tuple[str, tuple[float, float]], list[int]]:
    """Choose contexts around where each pair is predicted to cross."""
    account = account_of(shape, campaign.layers, campaign.dtype)
    found = {}
    for act, kv in campaign.pairs:
        at = replace(account, keep=Keep(act, kv))
        centre = WITHOUT * (at.crossover_tokens or 0.0)
        if known is not None:
            fit = known.fit(shape, 1, campaign.dtype)
            centre = from_fit(at, at.keep, fit, known.campaign).tokens or 0.0
        found[shape, (act, kv)] = contexts_around(centre, around)
    return found


def contexts_around(centre: float, around: Sequence[int]) -> list[int]:
    """Give contexts around a centre, on the grid, from half a step to the longest."""
    rounded = {min(MOST, max(GRID // 2, round((centre + off) / GRID) * GRID)) for off in around}
    return sorted(rounded)
