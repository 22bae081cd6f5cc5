"""A calibration: steps timed on one machine, the bandwidth they show, and what each branch takes beyond its bytes.

{"format": "headscope.calibration/1", "campaign": "3f9c...",       whose cells these are
 "hardware": {"gpu": ...}, "software": {...}, "commit": ...,
 "copy_tb_per_s": 4.25,                                            of a plain copy, reads and writes counted
 "cells": [{"shape", "context", "keep_act", "keep_kv", "batch", "dtype", "ms_per_token", "bytes", ...}, ...],
 "fits": [...]}                                                    what `Fit` makes of them, for a reader
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope.accounting.cell import Cell, Timed
from headscope.accounting.crossing import byte_ms
from headscope.accounting.crossover import Keep

FORMAT = "headscope.calibration/1"


@dataclass(frozen=True)
class Fit:
    """The steps of one shape as bytes / bandwidth + cost, with a cost for each pair of keep ratios.

    tb_per_s: the effective bandwidth: what the steps of a pair grow by with their bytes, over all pairs (least
    squares). costs: ms beyond the bytes' time, the mean over a pair's lengths. residual_ms: the farthest that a step is
    from this.
    """

    shape: str
    tb_per_s: float
    costs: Mapping[tuple[float, float], float]
    residual_ms: float

    @classmethod
    def of(cls, timed: Sequence[Timed]) -> Fit:
        """Fit the steps of a shape, a batch and a dtype.

        Raises ValueError where no pair was timed at two lengths, or time does not grow with bytes.
        """
        groups: dict[tuple[float, float], list[Timed]] = {}
        for each in timed:
            groups.setdefault((each.cell.keep_act, each.cell.keep_kv), []).append(each)
        centred = [pair for group in groups.values() for pair in _centred(group)]
        over, under = sum(count * count for count, _ in centred), sum(count * time for count, time in centred)
        if not over > 0 or not under > 0:
            raise ValueError(
                "`cells` must hold one shape's steps at two contexts or more that take longer with more bytes; "
                "calibrate at other `contexts`, or on a quieter machine"
            )
        bandwidth = over / under / 1e9
        beyond = {pair: [each.ms - byte_ms(each.bytes, bandwidth) for each in group] for pair, group in groups.items()}
        costs = {pair: _mean(found) for pair, found in beyond.items()}
        residual = max(abs(each - costs[pair]) for pair, found in beyond.items() for each in found)
        return cls(timed[0].cell.shape, bandwidth, costs, residual)

    def cost_ms(self, keep: Keep) -> float:
        """Give what a branch takes beyond its bytes.

        Between two keep ratios that were timed it lies on the line between them; beyond them it is the nearest one's.
        Both branches together cost what they cost alone, the dense step's cost counted once, unless they were timed.
        """
        if (keep.act, keep.kv) in self.costs:
            return self.costs[keep.act, keep.kv]
        if keep.act < 1 and keep.kv < 1:
            return self.cost_ms(Keep(keep.act, 1)) + self.cost_ms(Keep(1, keep.kv)) - self.cost_ms(Keep(1, 1))
        at = 0 if keep.act < 1 else 1
        points = {pair[at]: cost for pair, cost in self.costs.items() if pair[1 - at] == 1 and pair[at] < 1}
        if keep == Keep(1, 1) or not points:
            branch = "dense" if keep == Keep(1, 1) else ("projection", "kv")[at]
            raise ValueError(f"`calibration` holds no steps of the {branch} branch of {self.shape}; calibrate it")
        return _on_line(points, (keep.act, keep.kv)[at])

    def step_ms(self, count: float, keep: Keep) -> float:
        """Give the time of a step that reads so many bytes."""
        return byte_ms(count, self.tb_per_s) + self.cost_ms(keep)

    def to_json(self) -> dict[str, Any]:
        """Give it as plain data."""
        return {
            "shape": self.shape,
            "tb_per_s": round(self.tb_per_s, 4),
            "residual_ms": round(self.residual_ms, 4),
            "costs": [
                {"keep_act": act, "keep_kv": kv, "ms": round(cost, 4)} for (act, kv), cost in sorted(self.costs.items())
            ],
        }


@dataclass(frozen=True)
class Calibration:
    """What was timed on one machine. origin: the file it came from, for errors and evidence."""

    campaign: str
    hardware: Mapping[str, Any]
    copy_tb_per_s: float
    timed: tuple[Timed, ...]
    commit: str | None = None
    origin: str | None = None

    @property
    def device(self) -> str:
        """The GPU's name, or the processor's."""
        return str(self.hardware.get("gpu") or self.hardware.get("cpu"))

    @property
    def shapes(self) -> list[str]:
        """The shapes that were timed."""
        return list(dict.fromkeys(each.cell.shape for each in self.timed))

    def fit(self, shape: str, batch: int = 1, dtype: str = "bfloat16") -> Fit:
        """Fit the steps of a shape. Raises ValueError where there are none."""
        own = [
            each for each in self.timed if (each.cell.shape, each.cell.batch, each.cell.dtype) == (shape, batch, dtype)
        ]
        if not own:
            raise ValueError(
                f"`calibration` has no steps of {shape}, batch {batch}, {dtype}; it has {', '.join(self.shapes)}"
            )
        return Fit.of(own)

    def check_apart(self, campaign: str, cells: Iterable[Cell]) -> Calibration:
        """Refuse to predict a campaign from its own cells (ByteCross's rule); gives the calibration back.

        A cell counts as the campaign's own where shape, context, keep ratios, batch and dtype are the same, even when
        it was timed another day.
        """
        own = {each.cell for each in self.timed} & set(cells)
        if self.campaign == campaign or own:
            which = f"{len(own)} cells, such as {min(own, key=str)}" if own else "all cells"
            raise ValueError(
                f"`calibration` shares {which} with the campaign that it is to predict; a prediction uses no cell of "
                "that campaign: calibrate at other `contexts`"
            )
        return self

    @classmethod
    def of(cls, document: Mapping[str, Any], origin: str | None = None) -> Calibration:
        """Take what a calibration file holds."""
        return cls(
            document["campaign"],
            document["hardware"],
            document["copy_tb_per_s"],
            tuple(Timed(Cell.of(row), row["ms_per_token"], row["bytes"]) for row in document["cells"]),
            document.get("commit"),
            origin,
        )

    @classmethod
    def load(cls, path: str | Path) -> Calibration:
        """Read a calibration file; what is none is an error that names the file and what was found."""
        try:
            document = json.loads(Path(path).read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(
                f"`calibration` must be a file of `headscope bytes calibrate`, {path} is no JSON"
            ) from error
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            found = document.get("format") if isinstance(document, dict) else type(document).__name__
            raise ValueError(f'`calibration` must have "format": "{FORMAT}", {path} has {found!r}')
        try:
            return cls.of(document, str(path))
        except (KeyError, TypeError) as error:
            raise ValueError(f"`calibration` {path} is not whole: {error!r}; calibrate again") from error


def _centred(group: Sequence[Timed]) -> list[tuple[float, float]]:
    bytes_, ms = _mean([each.bytes for each in group]), _mean([each.ms for each in group])
    return [(each.bytes - bytes_, each.ms - ms) for each in group]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _on_line(points: Mapping[float, float], at: float) -> float:
    """Interpolate between the two nearest points; the nearest beyond them."""
    below, above = [each for each in points if each <= at], [each for each in points if each >= at]
    low, high = max(below, default=min(points)), min(above, default=max(points))
    if not below or not above or low == high:
        return points[high if not below else low]
    return points[low] + (points[high] - points[low]) * (at - low) / (high - low)
