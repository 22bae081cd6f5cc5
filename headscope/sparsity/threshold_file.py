"""A threshold file: the JSON in which thresholds are kept, readable without headscope, and what makes one valid.

{"format": "headscope.thresholds/1",
 "model": {"id", "revision", "config_hash", "family", ...},
 "projections": ["q_proj", ..., "down_proj"],
 "weights": [[147456, ...], ...],        numbers in each projection's weight, [layer][projection]
 "thresholds": [[0.31, ...], ...],       an input whose magnitude is not above is left out; 0: the projection is dense
 "kept": [[0.52, ...], ...],             the part of the inputs that was above, where they were calibrated
 "provenance": {"keep", "allocation", "data", "errors", "resolution", "software"}}
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscope.scores.document import layout, read_json, shortest
from headscope.scores.score_file import is_count

if TYPE_CHECKING:
    from headscope.sparsity.thresholds import Thresholds

FORMAT = "headscope.thresholds/1"
WHAT = "a threshold file"
PROVENANCE = ("keep", "allocation", "data", "errors", "resolution", "software")
TABLES = ("weights", "thresholds", "kept")


def to_text(found: Thresholds) -> str:
    """Give the text of a threshold file; equal thresholds give equal bytes."""
    whole = {
        "format": FORMAT,
        "model": found.model,
        "projections": list(found.projections),
        "weights": found.weights.tolist(),
        "thresholds": [[shortest(value) for value in row] for row in found.values.tolist()],
        "kept": [[round(value, 6) for value in row] for row in found.kept.tolist()],
        "provenance": found.provenance,
    }
    return layout(whole) + "\n"


def parse(path: str | Path) -> dict[str, Any]:
    """Read a threshold file into the arguments of Thresholds; errors give the file, the expected and the found."""
    found = read_json(path, WHAT)
    _check_sections(found, path)
    for name in TABLES:
        _check_table(found, name, path)
    return {
        "values": found["thresholds"],
        "kept": found["kept"],
        "weights": found["weights"],
        "projections": tuple(found["projections"]),
        "model": found["model"],
        "provenance": found["provenance"],
        "origin": str(path),
    }


def _check_sections(found: Any, path: str | Path) -> None:
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        has = repr(found.get("format", "none")) if isinstance(found, dict) else f"a {type(found).__name__}"
        raise ValueError(f'`{path}`: expected "format": "{FORMAT}", found {has}; `headscope sparsify` makes thresholds')
    kinds: dict[str, type] = {"model": dict, "provenance": dict, "projections": list, **dict.fromkeys(TABLES, list)}
    for section, kind in kinds.items():
        if not isinstance(found.get(section), kind):
            has = type(found[section]).__name__ if section in found else "none"
            raise ValueError(f"`{path}`: expected `{section}` to be a {kind.__name__}, found {has}")


def _check_table(found: dict[str, Any], name: str, path: str | Path) -> None:
    layers, names = len(found["thresholds"]), found["projections"]
    if len(found[name]) != layers or not layers:
        raise ValueError(
            f"`{path}`: expected {layers or 'some'} rows of `{name}`, one a layer, found {len(found[name])}"
        )
    for layer, row in enumerate(found[name]):
        if not isinstance(row, list) or len(row) != len(names):
            has = len(row) if isinstance(row, list) else repr(row)
            raise ValueError(
                f"`{path}`: expected {len(names)} `{name}`, one a projection, in layer {layer}, found {has}"
            )
        for value in row:
            if not _fits(name, value):
                raise ValueError(f"`{path}`: expected {RANGES[name]} in layer {layer} of `{name}`, found {value!r}")


RANGES = {
    "weights": "whole numbers above 0",
    "thresholds": "finite numbers from 0 up",
    "kept": "numbers from 0 to 1",
}


def _fits(name: str, value: Any) -> bool:
    if name == "weights":
        return is_count(value)
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return number and 0 <= value <= (1 if name == "kept" else math.inf)
