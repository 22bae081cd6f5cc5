"""A result file of a bench: its table and its plot."""

from __future__ import annotations

import importlib
import json
import pkgutil
from pathlib import Path
from typing import Any

BENCHES = {  # those with a table, by the function that makes it, and a plot, `headscope.report.<bench>_plot`
    "decode": "headscope.report.bench_table:of_decode",
    "memory": "headscope.report.bench_table:of_memory",
    "crossing": "headscope.report.crossing_table:of",
}


def plot_of(bench: str, path: Path, picture: Path | None) -> Path | None:
    """Say where a bench's plot goes: beside its result unless given; None for a bench without one."""
    return (picture or path.with_suffix(".png")) if bench in BENCHES else None


def read(path: Path) -> dict[str, Any]:
    """Read a result file that has a table and a plot."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        bench = document["bench"]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"`result` must be a result file of `headscope bench`, {path} is none") from error
    if bench not in BENCHES:
        raise ValueError(f"`result` must be of one of the benches {', '.join(BENCHES)}, {path} is of {bench!r}")
    return document


def show(document: dict[str, Any], path: Path, picture: Path) -> str:
    """Draw the plot of a result that lies at a path; give its table in Markdown."""
    bench = document["bench"]
    if not any("ms_per_token" in row for row in document["cells"]):
        raise ValueError(f"`result` must hold cells that were measured, {path} has none")
    importlib.import_module(f"headscope.report.{bench}_plot").draw(document, picture)
    return pkgutil.resolve_name(BENCHES[bench])(document, path.as_posix())
