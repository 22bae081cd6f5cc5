"""A budget file: the JSON in which a budget is kept, readable without headscope, and what makes one valid.

{"format": "headscope.budget/1",
 "geometry": {"layers": 12, "kv_heads": 4, "heads": 12, "head_dim": 32},  heads and head_dim where they are known
 "window": 32, "prompt": 110,                                             prompt: null for any length
 "kept": [[64, 80, ...], ...],                                            tokens [layer][kv], the window included
 "provenance": {"rule", "settings", "asked", "moved", "model", "scores", "software"}}
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscope.scores.document import layout, read_json
from headscope.scores.score_file import is_count

if TYPE_CHECKING:
    from headscope.budget.budget import Budget

FORMAT = "headscope.budget/1"
WHAT = "a budget file"
SECTIONS = ("rule", "settings", "asked", "moved", "model", "scores", "software")
SIZES = ("layers", "kv_heads", "heads", "head_dim")


def to_text(budget: Budget) -> str:
    """Give the text of a budget file; equal budgets give equal bytes."""
    model = budget.model
    whole = {
        "format": FORMAT,
        "geometry": {size: model[size] for size in SIZES if model.get(size) is not None},
        "window": budget.window,
        "prompt": budget.prompt,
        "kept": budget.kept.tolist(),
        "provenance": {section: getattr(budget, section) for section in SECTIONS}
        | {"model": {key: value for key, value in model.items() if key not in SIZES}},
    }
    return layout(whole) + "\n"


def parse(path: str | Path) -> dict[str, Any]:
    """Read a budget file into the arguments of Budget; errors give the file, the expected and the found."""
    found = read_json(path, WHAT)
    _check_sections(found, path)
    geometry, provenance = found["geometry"], found["provenance"]
    _check_rows(found["kept"], geometry, path)
    told = {section: provenance[section] for section in SECTIONS if section in provenance}
    return told | {
        "kept": found["kept"],
        "window": found.get("window"),
        "prompt": found.get("prompt"),
        "model": provenance.get("model", {}) | geometry,
        "origin": str(path),
    }


def _check_sections(found: Any, path: str | Path) -> None:
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        has = repr(found.get("format", "none")) if isinstance(found, dict) else f"a {type(found).__name__}"
        raise ValueError(
            f'`{path}`: expected "format": "{FORMAT}", found {has}; `headscope allocate` makes a budget of scores'
        )
    for section, kind in {"geometry": dict, "kept": list, "provenance": dict}.items():
        _check_kind(found, section, kind, path)
    for section, kind in dict.fromkeys(("settings", "model", "scores", "software"), dict).items():
        if section in found["provenance"]:
            _check_kind(found["provenance"], section, kind, path)


def _check_kind(found: dict[str, Any], section: str, kind: type, path: str | Path) -> None:
    if not isinstance(found.get(section), kind):
        has = type(found[section]).__name__ if section in found else "none"
        raise ValueError(f"`{path}`: expected `{section}` to be a {kind.__name__}, found {has}")


def _check_rows(kept: list[Any], geometry: dict[str, Any], path: str | Path) -> None:
    for size in ("layers", "kv_heads"):
        if not is_count(geometry.get(size)):
            has = geometry.get(size)
            raise ValueError(f"`{path}`: expected `geometry.{size}` to be a whole number above 0, found {has!r}")
    if len(kept) != geometry["layers"]:
        raise ValueError(f"`{path}`: expected {geometry['layers']} rows of `kept`, one a layer, found {len(kept)}")
    for layer, row in enumerate(kept):
        if not isinstance(row, list) or len(row) != geometry["kv_heads"]:
            has = len(row) if isinstance(row, list) else repr(row)
            raise ValueError(
                f"`{path}`: expected {geometry['kv_heads']} `kept`, one a KV head, in layer {layer}, found {has}"
            )
        if not all(isinstance(tokens, int) and not isinstance(tokens, bool) for tokens in row):
            raise ValueError(f"`{path}`: expected whole numbers of tokens in layer {layer} of `kept`, found {row}")
