"""Results at hand: what calibrations, benches and gates have found, read from the files in a folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope.accounting.calibration import FORMAT as CALIBRATION
from headscope.accounting.calibration import Calibration
from headscope.accounting.cell import Cell
from headscope.plan.evidence import Evidence

GATE = "headscope.gate/1"
SameShape = Callable[[str], bool]  # a shape's name in a result -> whether it is the planned model's


@dataclass(frozen=True)
class Step:
    """A decode step that was measured. gpu: where."""

    cell: Cell
    ms: float
    gpu: str
    evidence: Evidence


@dataclass(frozen=True)
class Judgement:
    """What a gate found of a model's configuration. lost: whether placements were lost, or nothing was shown.

    context: tokens of its longest prompts. rise: of perplexity; None: not measured.
    """

    model: Mapping[str, Any]
    keep_act: float
    keep_kv: float
    rise: float | None
    lost: bool
    context: int
    evidence: Evidence

    def admits(self, quality: float) -> bool:
        """Whether it admits the configuration at a rise of perplexity."""
        return not self.lost and self.rise is not None and self.rise <= quality


@dataclass(frozen=True)
class Results:
    """All documents of some folders by the file's name; of two files with one name the first folder's."""

    documents: Mapping[str, Mapping[str, Any]]

    @classmethod
    def read(cls, folders: Iterable[Path]) -> Results:
        """Read every JSON file in the folders; what is no result file is left out."""
        found: dict[str, Mapping[str, Any]] = {}
        for path in (path for folder in folders for path in sorted(folder.glob("*.json"))):
            try:
                document = json.loads(path.read_text(encoding="utf-8"))
            except ValueError:
                continue
            if isinstance(document, dict):
                found.setdefault(path.name, document)
        return cls(found)

    @property
    def calibrations(self) -> list[Calibration]:
        """All calibrations."""
        return [
            Calibration.of(document, name)
            for name, document in self.documents.items()
            if document.get("format") == CALIBRATION
        ]

    def of_bench(self, bench: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Give the results of one bench with their files' names."""
        return ((name, document) for name, document in self.documents.items() if document.get("bench") == bench)

    def steps(self) -> Iterator[Step]:
        """Give all decode steps that were measured, of `bench crossing` first."""
        for name, document in self.of_bench("crossing"):
            for row in document["speed_ups"]:
                cell = Cell.of({"batch": 1, "dtype": document["settings"]["dtype"], **row})
                yield self._step(name, document, cell, row["ms_per_token"]["mean"], f"{row['blocks']} blocks")
        for name, document in self.of_bench("decode"):
            for cell, ms, told in _fastest(document["cells"]):
                yield self._step(name, document, cell, ms, told)

    @staticmethod
    def _step(name: str, document: Mapping[str, Any], cell: Cell, ms: float, told: str) -> Step:
        gpu = str(document["hardware"].get("gpu") or document["hardware"].get("cpu"))
        evidence = Evidence("measured", f"{ms:.3f} ms, {told}", name, str(cell), document.get("commit"))
        return Step(cell, ms, gpu, evidence)

    def judgements(self) -> Iterator[Judgement]:
        """Give what gates have found."""
        for name, document in self.documents.items():
            if document.get("format") == GATE:
                yield from _gated(name, document)
            elif document.get("bench") == "quality-budget":
                yield from _budgeted(name, document)


def _fastest(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Cell, float, str]]:
    """Give the full-cache steps of `bench decode`, each with its fastest attention in the fused runtime."""
    found: dict[Cell, tuple[float, str]] = {}
    for row in rows:
        if row.get("cache") == "full" and row.get("attention") != "transformers" and "ms_per_token" in row:
            cell = Cell(row["shape"], row["context"], batch=row["batch"])
            best = found.get(cell, (float("inf"), ""))
            found[cell] = min(best, (row["ms_per_token"], f"attention by {row['attention']}"))
    return ((cell, ms, told) for cell, (ms, told) in found.items())


def _gated(name: str, document: Mapping[str, Any]) -> Iterator[Judgement]:
    configuration, context = document["configuration"], int(document["protocol"].get("context", 0))
    keep_act = configuration.get("sparsity_keep", None if "sparsity" in configuration else 1.0)
    keep_kv = configuration.get("keep_kv", 1.0)
    if "per_head" in configuration:
        keep_kv = min(1.0, configuration["per_head"] / context) if context else None
    if keep_act is None or keep_kv is None or "budget" in configuration:
        return  # it does not say how much is kept
    rise = (document.get("perplexity") or {}).get("rise")
    lost = any(test["lost"] for test in document["tests"]) or not any(test["right_dense"] for test in document["tests"])
    yield Judgement(
        document["model"], keep_act, keep_kv, rise, lost, context, _verdict(name, document, rise, lost, context)
    )


def _budgeted(name: str, document: Mapping[str, Any]) -> Iterator[Judgement]:
    context = int(document["protocol"].get("context", 0))
    for at in document["budgets"]:
        lost = not at["admitted"]
        told = _verdict(name, document, at["rise"], lost, context)
        yield Judgement(document["model"], at["keep_act"], at["keep_kv"], at["rise"], lost, context, told)


def _verdict(name: str, document: Mapping[str, Any], rise: float | None, lost: bool, context: int) -> Evidence:
    risen = "perplexity not measured" if rise is None else f"perplexity {rise:+.3f}"
    answered = "placements lost" if lost else "every placement answered that the dense model answers"
    return Evidence("measured", f"{risen}, {answered}", name, f"prompts of {context} tokens", document.get("commit"))
