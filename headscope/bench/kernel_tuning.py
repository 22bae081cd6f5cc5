"""The tunings of decode attention on the GPU at hand: which is fastest on equal and on ragged lengths."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import astuple, dataclass, replace
from functools import partial
from typing import Any

from headscope.bench.clock import speed, time_ms
from headscope.bench.ragged import Case, Cell, equal_lengths, make, ragged_lengths
from headscope.kernels.decode import Tuning, launch, tuning

Rows = Iterator[dict[str, Any]]
SPLITS = [  # KiB of a tile, warps, stages
    *(
        (16, 4, 3),
        (16, 4, 2),
        (16, 4, 4),
        (8, 4, 4),
        (8, 2, 3),
        (8, 2, 4),
        (8, 2, 6),
        (8, 1, 4),
        (16, 2, 3),
        (16, 8, 3),
    ),
    *((32, 4, 2), (32, 8, 2), (32, 8, 3)),
]
TUNED = [
    Cell(8, 4, 7, 128, 32768),
    Cell(1, 32, 1, 128, 32768),
    Cell(8, 8, 4, 128, 32768),
    Cell(8, 4, 7, 64, 65536),
    Cell(8, 4, 7, 256, 16384),
    Cell(8, 4, 7, 80, 52428),
    Cell(8, 4, 7, 96, 43690),
    Cell(8, 4, 7, 32, 131072),
]


def tune(copy: float, until: float) -> Rows:
    """Time other tunings than the one shipped, and give the best of each shape, until a moment."""
    for cell in TUNED:
        cases = [make(cell, lengths(cell)) for lengths in (equal_lengths, ragged_lengths)]
        found: list[Trial] = []
        for kib, warps, stages in SPLITS:
            if time.monotonic() > until:
                yield {"cell": cell.name, "stopped": "out of time"}
                break
            tuned = Tuning(kib * 1024, warps, stages, 1)
            try:
                found += [_try(cases, replace(tuned, shares=shares)) for shares in (2, 3, 4, 6, 8, 12, 16)]
            except Exception as error:  # too much shared memory, say
                yield {"cell": cell.name, "tuning": astuple(tuned), "failed": repr(error)[:120]}
        yield from _best(cell, cases, found, copy)


@dataclass(frozen=True)
class Trial:
    """A tuning's times on equal and on ragged lengths, in ms."""

    tuned: Tuning
    equal: float
    ragged: float


def _try(cases: list[Case], tuned: Tuning) -> Trial:
    equal, ragged = (time_ms(partial(launch, *case.inputs, tuned), 11) for case in cases)
    return Trial(tuned, equal, ragged)


def _best(cell: Cell, cases: list[Case], found: list[Trial], copy: float) -> Rows:
    """Give the shape's best tunings, how the shipped one stands, and the best shares of each split."""
    found = sorted(found, key=lambda trial: trial.equal + trial.ragged)
    shipped = tuning(cell.dim)
    for place, trial in enumerate(found):
        if place < 8 or trial.tuned == shipped:
            row = {"cell": cell.name, "place": place, "tuning": astuple(trial.tuned), "shipped": trial.tuned == shipped}
            yield row | {
                "equal": speed(cases[0].kv_bytes, trial.equal, copy),
                "ragged": speed(cases[1].kv_bytes, trial.ragged, copy),
            }
    splits: dict[str, Any] = {}
    for trial in found:
        split = str(astuple(replace(trial.tuned, shares=0)))
        splits.setdefault(split, [trial.tuned.shares, round(trial.equal * 1e3, 1), round(trial.ragged * 1e3, 1)])
    yield {"cell": cell.name, "best_shares_of_each_split": splits}
