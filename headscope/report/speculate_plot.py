"""The plot of speculation: speed-up against gamma in every cell, and against the context, with the bytes' bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headscope.files import write_atomically
from headscope.report.panels import GREY, LETTER, label_ends, scale, sheet, to_png

SHOWN = 0.734  # the acceptance that panels of gamma are drawn for: accepted / proposed at gamma 9, StD's table 1
COLOURS = ("#56b4e9", "#0072b2", "#003a5d", "#d55e00", "#cc79a7", "#009e73")

Row = dict[str, Any]


def draw(document: dict[str, Any], path: str | Path) -> Path:
    """Write the plot of a result of `headscope bench speculate` as a PNG, whole or not at all; no display is needed."""
    return write_atomically(path, render(document))


def render(document: dict[str, Any]) -> bytes:
    """Draw the plot and give the PNG's bytes. Dashed: what the bytes allow; below 1 plain decoding is faster."""
    rows = [row for row in document["cells"] if "verify_ms" in row]
    batches = sorted({row["batch"] for row in rows})
    figure, panels = sheet(1, len(batches) + 1, together=False)
    gpu, commit = document["hardware"]["gpu"], document["commit"]
    figure.suptitle(f"{document['shape']}, K + text {document['kept']}, {gpu}, commit {commit}", fontsize=10)
    figure.supylabel("speed-up over the graphed full cache", fontsize=9)
    contexts = sorted({row["context"] for row in rows})
    _prepare(panels[0], rows)
    figure.draw_without_rendering()
    for axes, batch in zip(panels[0], batches, strict=False):
        _draw_gammas(axes, batch, [row for row in rows if row["batch"] == batch])
    _draw_contexts(panels[0, -1], rows, contexts)
    return to_png(figure)


def curve(row: Row, ratio: float) -> tuple[list[int], list[float], list[float]]:
    """Give gammas, speed-ups and byte bounds of a cell at an acceptance (accepted / proposed at gamma 9)."""
    from headscope.accounting.speculation import from_ratio

    each = from_ratio(ratio, 9)
    gammas = sorted(int(gamma) for gamma in row["verify_ms"])
    verify = {int(gamma): ms for gamma, ms in row["verify_ms"].items()}
    tokens = {gamma: 1 + sum(each**power for power in range(1, gamma + 1)) for gamma in gammas}
    speeds = [tokens[g] * row["dense_ms"] / (g * row["even_ms"] + verify[g]) for g in gammas]
    bounds = [tokens[g] * row["dense_bytes"] / (g * row["kept_bytes"] + row["dense_bytes"]) for g in gammas]
    return gammas, speeds, bounds


def _prepare(panels: Any, rows: list[Row]) -> None:
    most = max(max(bounds) for row in rows for _, _, bounds in [curve(row, SHOWN)])
    for axes in panels:
        axes.set_ylim(0, most * 1.08)
        axes.axhline(1, color=GREY, linewidth=1, ls=":")
        axes.grid(color="#eeeeee")
        axes.tick_params(labelsize=8)


def _draw_gammas(axes: Any, batch: int, rows: list[Row]) -> None:
    ends = {}
    for row, colour in zip(rows, COLOURS, strict=False):
        gammas, speeds, bounds = curve(row, SHOWN)
        axes.plot(gammas, speeds, color=colour, marker="o", ms=3, linewidth=1.5)
        axes.plot(gammas, bounds, color=colour, linewidth=1, ls="--")
        ends[f"{row['context'] // 1024}K"] = (gammas[-1], speeds[-1], colour)
    axes.set_xlim(0, 19)
    axes.set_xticks([1, 5, 9, 13])
    axes.set_title(f"batch {batch}", fontsize=9)
    axes.set_xlabel(f"gamma, at {SHOWN:.1%} accepted", fontsize=8)
    label_ends(axes, ends)


def _draw_contexts(axes: Any, rows: list[Row], contexts: list[int]) -> None:
    scale(axes, contexts)
    axes.set_title("the best gamma", fontsize=9)
    axes.set_xlabel("context", fontsize=8)
    ends = {}
    for batch, colour in zip(sorted({row["batch"] for row in rows}), COLOURS, strict=False):
        own = sorted((row for row in rows if row["batch"] == batch), key=lambda row: row["context"])
        best = [max(curve(row, SHOWN)[1]) for row in own]
        bound = [max(curve(row, SHOWN)[2]) for row in own]
        axes.plot([row["context"] for row in own], best, color=colour, marker="o", ms=3, linewidth=1.5)
        axes.plot([row["context"] for row in own], bound, color=colour, linewidth=1, ls="--")
        ends[f"batch {batch}"] = (own[-1]["context"], best[-1], colour)
    label_ends(axes, ends)
    axes.annotate("dashed: what the bytes allow", (0.03, 0.96), xycoords="axes fraction", va="top", fontsize=LETTER)
