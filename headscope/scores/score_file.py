"""A score file: the JSON in which head scores are kept, and what makes one valid."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headscope.scores.document import layout, read_json, shortest
from headscope.scores.record import FailedPage, PageRecord

if TYPE_CHECKING:
    from headscope.scores.head_scores import HeadScores

FORMAT = "headscope.scores/1"
SECTIONS = ("model", "probe", "software", "summary")


def to_text(scores: HeadScores, pages: bool) -> str:
    """Give the text of a score file: float32 scores as their shortest decimals, per-page float64 exactly."""
    rows = [[shortest(value) for value in row] for row in scores.values.tolist()]
    whole: dict[str, Any] = {"format": FORMAT} | {key: getattr(scores, key) for key in SECTIONS}
    whole |= {"values": rows, "failed": [dataclasses.asdict(page) for page in scores.failed]}
    if pages and scores.pages is not None:
        whole["pages"] = [page.to_json() for page in scores.pages]
    return layout(whole) + "\n"


def parse(path: str | Path) -> dict[str, Any]:
    """Read a score file into the arguments of HeadScores; errors give the file, the expected and the found."""
    found = read_json(path)
    _check_sections(found, path)
    _check_rows(found["values"], found["model"], path)
    try:
        pages = None if found.get("pages") is None else tuple(PageRecord.from_json(page) for page in found["pages"])
        failed = tuple(FailedPage(**page) for page in found.get("failed", []))
    except (TypeError, ValueError) as error:
        raise ValueError(f"`{path}`: {error}") from None
    _check_pages(pages, found, path)
    sections = {key: found[key] for key in SECTIONS}
    kv_heads = found["model"]["kv_heads"]
    return sections | {
        "values": found["values"],
        "kv_heads": kv_heads,
        "pages": pages,
        "failed": failed,
        "origin": str(path),
    }


def is_count(value: Any) -> bool:
    """Say whether a value is a whole number above 0."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value > 0)


def _check_sections(found: Any, path: str | Path) -> None:
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        has = repr(found.get("format", "none")) if isinstance(found, dict) else f"a {type(found).__name__}"
        raise ValueError(
            f'`{path}`: expected "format": "{FORMAT}", found {has}; `headscope import` reads head files of other tools'
        )
    kinds: dict[str, type] = {**dict.fromkeys(SECTIONS, dict), "values": list}
    for section, kind in kinds.items():
        if not isinstance(found.get(section), kind):
            has = type(found.get(section)).__name__ if section in found else "none"
            raise ValueError(f"`{path}`: expected `{section}` to be a {kind.__name__}, found {has}")


def _check_rows(values: list[Any], model: dict[str, Any], path: str | Path) -> None:
    for key in ("layers", "heads", "kv_heads"):
        if not is_count(model.get(key)):
            raise ValueError(f"`{path}`: expected `model.{key}` to be a whole number above 0, found {model.get(key)!r}")
    if len(values) != model["layers"]:
        raise ValueError(f"`{path}`: expected {model['layers']} rows of `values`, one a layer, found {len(values)}")
    for layer, row in enumerate(values):
        if not isinstance(row, list) or len(row) != model["heads"]:
            size = len(row) if isinstance(row, list) else repr(row)
            raise ValueError(
                f"`{path}`: expected {model['heads']} `values`, one a head, in layer {layer}, found {size}"
            )


def _check_pages(pages: tuple[PageRecord, ...] | None, found: dict[str, Any], path: str | Path) -> None:
    if pages is None:
        return
    if len(pages) != found["probe"].get("pages"):
        raise ValueError(f"`{path}`: expected {found['probe'].get('pages')} `pages`, found {len(pages)}")
    shape = (found["model"]["layers"], found["model"]["heads"])
    for page in pages:
        if page.shape != shape:
            raise ValueError(
                f"`{path}`: expected page {page.name!r} to have {shape} layers and heads, found {page.shape}"
            )
