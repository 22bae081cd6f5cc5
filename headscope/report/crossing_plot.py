"""The plot of a crossing campaign: speed-ups beside bounds, the KV branch's advantage, and the attention baselines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headscope.files import write_atomically
from headscope.report.bounds_plot import LINES
from headscope.report.panels import GREY, LETTER, label_ends, scale, scale_up, to_png

Row = Mapping[str, Any]
PAIRS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9")  # Okabe and Ito's
PATHS = {"masked": "#d55e00", "fused": "#e69f00", "sdpa": "#cc79a7", "fa3": "#56b4e9", "split": "#0072b2"}
HEIGHT = 3.3  # inches of a row of panels


def draw(document: Row, path: str | Path) -> Path:
    """Write the plot of a result of `headscope bench crossing` as a PNG, whole or not at all; no display is needed."""
    return write_atomically(path, render(document))


def render(document: Row) -> bytes:
    """Draw the plot and give the PNG's bytes: a column for each shape, the baselines below."""
    from matplotlib.figure import Figure

    shapes = list(dict.fromkeys(row["shape"] for row in document["speed_ups"]))
    rows = 2 + bool(document["baselines"])
    figure = Figure(figsize=(1.0 + 4.4 * max(1, len(shapes)), HEIGHT * rows), layout="constrained")
    panels = figure.subplots(rows, max(1, len(shapes)), squeeze=False)
    hardware = document["hardware"]
    where = (
        f"{hardware.get('gpu') or hardware.get('cpu')}, {document['settings']['dtype']}, commit {document['commit']}"
    )
    figure.suptitle(where, fontsize=10)
    for column, shape in enumerate(shapes):
        _speed_ups(panels[0, column], shape, document)
        _advantages(panels[1, column], shape, document)
    for axes in panels[2:, :].flat:
        axes.set_axis_off()
    if document["baselines"]:
        panels[2, 0].set_axis_on()
        figure.draw_without_rendering()  # gives the panel its place, which labels need
        _baselines(panels[2, 0], document["baselines"])
    return to_png(figure)


def _speed_ups(axes: Any, shape: str, document: Row) -> None:
    """Draw measured speed-ups as solid lines and their bounds as dashed ones."""
    rows = [row for row in document["speed_ups"] if row["shape"] == shape and row["branch"] != "dense"]
    act, kv = document["settings"]["pairs"][0]
    keeps = {"projection": (act, 1.0), "kv": (1.0, kv), "both": (act, kv)}
    contexts = sorted({row["context"] for row in rows if row["branch"] == "both"})
    for branch, (label, colour, mark, _) in LINES.items():
        own = [row for row in rows if (row["keep_act"], row["keep_kv"]) == keeps[branch] and row["context"] in contexts]
        own.sort(key=lambda row: row["context"])
        at = [row["context"] for row in own]
        means = [row["speed_up"]["mean"] for row in own]
        axes.errorbar(at, means, _bars(row["speed_up"] for row in own), color=colour, marker=mark, ms=4, label=label)
        axes.plot(at, [row["bound"] for row in own], color=colour, ls="--", linewidth=1)
    crossing = next((row for row in document["crossings"] if row["shape"] == shape), None)
    if crossing is not None and crossing["byte_tokens"] is not None:
        label = f"byte crossover, {crossing['byte_tokens'] / 1024:.1f}K"
        axes.axvline(crossing["byte_tokens"], color=GREY, ls=":", linewidth=1.2, label=label)
    axes.plot([], [], color=GREY, ls="--", linewidth=1, label="bound")
    _frame(axes, contexts)
    axes.set_title(f"{shape}, keeping {act:.0%} of activations, {kv:.0%} of the cache", fontsize=9)
    axes.set_ylabel("speed-up over dense", fontsize=9)
    axes.legend(loc="upper left", frameon=False, fontsize=LETTER)


def _advantages(axes: Any, shape: str, document: Row) -> None:
    """Draw what the KV branch is faster by: points as measured, lines as predicted, byte crossovers dotted."""
    axes.axhline(0.0, color=GREY, linewidth=0.8)
    every = [row for row in document["crossings"] if row["shape"] == shape]
    for row, colour in zip(every, PAIRS, strict=False):
        points = row["advantages_ms"]
        label = f"{row['keep_act']:.1f} / {row['keep_kv']:.1f}"
        at, means = [point["context"] for point in points], [point["mean"] for point in points]
        axes.errorbar(at, means, _bars(points), color=colour, fmt="o", ms=4, capsize=2, label=label)
        if row["byte_tokens"] is not None:
            axes.axvline(row["byte_tokens"], color=colour, ls=":", linewidth=1)
        guess = _predicted(document, row)
        if guess is not None:
            line = [_line(guess, context) for context in (at[0], at[-1])]
            axes.plot([at[0], at[-1]], line, color=colour, linewidth=1)
    axes.ticklabel_format(axis="x", style="plain")
    axes.xaxis.set_major_locator(_every(16384 if _widest(every) <= 131072 else 65536))
    axes.xaxis.set_major_formatter(lambda context, _: f"{context / 1024:g}K")
    axes.tick_params(labelsize=8)
    axes.grid(color="#eeeeee")
    axes.set_xlabel("context (K = 1024 tokens); lines predicted, dotted: byte crossover", fontsize=8)
    axes.set_ylabel("cache branch ahead by, ms", fontsize=9)
    axes.legend(loc="upper left", frameon=False, fontsize=LETTER, title="activations / cache", title_fontsize=LETTER)


def _widest(rows: Sequence[Row]) -> float:
    return max((point["context"] for row in rows for point in row["advantages_ms"]), default=1)


def _every(step: int) -> Any:
    from matplotlib.ticker import MultipleLocator

    return MultipleLocator(step)


def _predicted(document: Row, row: Row) -> Row | None:
    wanted = row["shape"], row["keep_act"], row["keep_kv"]
    return next((at for at in document["predictions"] if (at["shape"], at["keep_act"], at["keep_kv"]) == wanted), None)


def _line(guess: Row, context: float) -> float:
    beyond = guess["projection_ms"] - guess["kv_ms"]
    return (context - (guess["byte_tokens"] or 0.0)) / 1024 * guess["growth_ms"] + beyond


def _baselines(axes: Any, rows: Sequence[Row]) -> None:
    """Draw the speed-up of the same window with each attention, and what bytes allow."""
    contexts = sorted({row["context"] for row in rows})
    scale(axes, contexts)
    scale_up(axes, [*(row["speed_up"] for row in rows), *(row["bound"] for row in rows)])
    ends = {}
    for name in dict.fromkeys(row["attention"] for row in rows):
        own = sorted((row for row in rows if row["attention"] == name), key=lambda row: row["context"])
        at, faster = [row["context"] for row in own], [row["speed_up"] for row in own]
        colour = PATHS.get(name, GREY)
        axes.plot(at, faster, color=colour, marker="o", ms=3.5, linewidth=1.5)
        ends[name] = (float(at[-1]), faster[-1], colour)
    bounds = {row["context"]: row["bound"] for row in rows}
    axes.plot(contexts, [bounds[context] for context in contexts], color="black", ls="--", linewidth=1)
    ends["bytes allow"] = (float(contexts[-1]), bounds[contexts[-1]], "black")
    axes.set_title(f"the same {rows[0]['keep_kv']:.0%} window with each attention, {rows[0]['shape']}", fontsize=9)
    axes.set_xlabel("context, tokens (K = 1024)", fontsize=8)
    axes.set_ylabel("speed-up over dense", fontsize=9)
    label_ends(axes, ends)


def _frame(axes: Any, contexts: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(contexts, [f"{context / 1024:g}K" for context in contexts])
    axes.minorticks_off()
    axes.tick_params(labelsize=8)
    axes.grid(color="#eeeeee")


def _bars(bounds: Any) -> list[list[float]] | None:
    """Give the lengths of error bars below and above; none without intervals."""
    found = list(bounds)
    if any(each["low"] is None or math.isnan(each["low"]) for each in found):
        return None
    return [[each["mean"] - each["low"] for each in found], [each["high"] - each["mean"] for each in found]]
