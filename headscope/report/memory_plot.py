"""The plot of memory: the peak of an answer and what is held at its end, against the context."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headscope.files import write_atomically
from headscope.report.decode_plot import FULL, colours
from headscope.report.panels import GREY, label_ends, scale, sheet, to_png

GIB = 1024  # MiB
STROKES = {"peak": "-", "steady": "--"}


def draw(document: dict[str, Any], path: str | Path) -> Path:
    """Write the plot of a result of `headscope bench memory` as a PNG, whole or not at all; no display is needed."""
    return write_atomically(path, render(document))


def render(document: dict[str, Any]) -> bytes:
    """Draw the plot and give the PNG's bytes; what was not measured is left out."""
    answers = [row for row in document["cells"] if row["run"] != "prefill"]
    shapes = list(dict.fromkeys(row["shape"] for row in answers))
    contexts = sorted({row["context"] for row in answers})
    figure, panels = sheet(1, len(shapes))
    scale(panels[0, 0], contexts)
    panels[0, 0].set_ylim(0, 1.06 * max(row.get("peak_mib", row["weight_mib"]) for row in answers) / GIB)
    hardware = f"{document['hardware']['gpu']}, bfloat16, commit {document['commit']}"
    figure.suptitle(f"{answers[0]['new_tokens']} new tokens\n{hardware}", fontsize=10)
    figure.supxlabel("context, tokens (K = 1024); solid: the peak, dashed: at the end", fontsize=9)
    figure.supylabel("GPU memory, GiB", fontsize=9)
    figure.draw_without_rendering()  # gives the panels their places, which labels need
    for axes, shape in zip(panels[0], shapes, strict=True):
        _draw_panel(axes, shape, [row for row in answers if row["shape"] == shape], contexts)
    return to_png(figure)


def _draw_panel(axes: Any, shape: str, rows: Sequence[dict[str, Any]], contexts: list[int]) -> None:
    scale(axes, contexts)
    axes.set_title(f"{shape}, batch 1", fontsize=9)
    weights = rows[0]["weight_mib"] / GIB
    axes.plot([axes.get_xlim()[0], contexts[-1]], [weights, weights], color=GREY, linewidth=1, ls=":")
    ends = {"weights": (contexts[-1], weights, GREY)}
    runs = {"transformers": GREY, "full cache": FULL}
    budgets = sorted({row["budget"] for row in rows if "budget" in row})
    runs |= {f"budget {per_head}": colour for per_head, colour in colours(budgets).items()}
    for name, colour in runs.items():
        own = {row["context"]: row for row in rows if _name(row) == name and "peak_mib" in row}
        for which, stroke in STROKES.items():
            sizes = [own[at][f"{which}_mib"] / GIB if at in own else float("nan") for at in contexts]
            axes.plot(contexts, sizes, color=colour, ls=stroke, marker="o", ms=3.5, linewidth=1.5)
        ends |= {name: (max(own), own[max(own)]["peak_mib"] / GIB, colour)} if own else {}
    label_ends(axes, ends)


def _name(row: dict[str, Any]) -> str:
    return {"transformers": "transformers", "full": "full cache"}.get(row["run"]) or f"budget {row['budget']}"
