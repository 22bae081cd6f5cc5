"""The sweep's plot: words right against bytes of the kept cache."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headscope.files import write_atomically

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")  # Okabe and Ito's
LINES = (("o", "-"), ("s", "--"), ("^", ":"), ("D", "-."))


def draw(points: Sequence[dict[str, Any]], path: str | Path, title: str = "") -> Path:
    """Write the plot as a PNG, whole or not at all; no display is needed. points: as `evaluate.sweep` gives them.

    A line for each rule (its colour) and selection (its mark), over budgets; seeds are dots around their mean.
    """
    return write_atomically(path, render(points, title))


def render(points: Sequence[dict[str, Any]], title: str = "") -> bytes:
    """Draw the plot and give the PNG's bytes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.2, 4.8), layout="constrained")
    axes = figure.add_subplot()
    lines = _lines(points)
    rules, selections = (list(dict.fromkeys(names)) for names in zip(*lines, strict=True)) if lines else ([], [])
    for (rule, select), line in lines.items():
        style = LINES[selections.index(select) % len(LINES)]
        _draw_line(axes, f"{rule}, {select}", line, COLOURS[rules.index(rule) % len(COLOURS)], *style)
    for full in (point for point in points if point["rule"] == "full"):
        axes.axhline(100 * full["accuracy"], color="#888888", linewidth=1, linestyle="--")
        place = (0.01, 100 * full["accuracy"])
        axes.annotate("full cache", place, xycoords=("axes fraction", "data"), va="top", color="#666666")
    axes.set(xlabel="KV cache of the prompt, KB a page", ylabel="words right, %", ylim=(0, 102), title=title)
    axes.grid(color="#eeeeee")
    if lines:
        figure.legend(loc="outside right center", frameon=False, fontsize=8)
    FigureCanvasAgg(figure)
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=160, metadata={"Software": None})
    return png.getvalue()


def _lines(points: Sequence[dict[str, Any]]) -> dict[tuple[str, str], dict[int, list[dict[str, Any]]]]:
    """Group the points by rule and selection, then by bytes."""
    lines: dict[tuple[str, str], dict[int, list[dict[str, Any]]]] = {}
    for point in points:
        if point["rule"] != "full":
            line = lines.setdefault((point["rule"], point["select"]), {})
            line.setdefault(point["kv_bytes"], []).append(point)
    return lines


def _draw_line(
    axes: Any, label: str, line: dict[int, list[dict[str, Any]]], colour: str, mark: str, stroke: str
) -> None:
    sizes = sorted(line)
    means = [sum(point["accuracy"] for point in line[size]) / len(line[size]) for size in sizes]
    across = [size / 1024 for size in sizes]
    axes.plot(across, [100 * mean for mean in means], color=colour, marker=mark, ls=stroke, ms=5, label=label)
    for size in sizes:
        if len(line[size]) > 1:
            dots = [100 * point["accuracy"] for point in line[size]]
            axes.plot([size / 1024] * len(dots), dots, ".", color=colour, alpha=0.4)
        else:
            low, high = line[size][0]["interval"]
            axes.plot([size / 1024] * 2, [100 * low, 100 * high], color=colour, linewidth=1, alpha=0.6)
