"""The plot of decode latency: ms a token against the context, full cache and budgets, a panel for each shape."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headscope.files import write_atomically
from headscope.report.decode_cells import Cell, Cells, Row
from headscope.report.panels import GREY, LETTER, label_ends, scale, scale_up, sheet, to_png

BATCHES = (1, 8)  # a row of panels each
FULL = "#d55e00"
BUDGETS = ("#56b4e9", "#0072b2", "#003a5d", "#009e73", "#cc79a7")


def draw(document: dict[str, Any], path: str | Path) -> Path:
    """Write the plot of a result of `headscope bench decode` as a PNG, whole or not at all; no display is needed."""
    return write_atomically(path, render(document))


def render(document: dict[str, Any]) -> bytes:
    """Draw the plot and give the PNG's bytes. What was not measured is left out; a budget that loses has a cross."""
    cells = Cells.of(document)
    measured = cells.cells
    shapes = list(dict.fromkeys(shape for shape, _, _ in measured))
    batches = sorted({batch for _, batch, _ in measured} & set(BATCHES)) or sorted({batch for _, batch, _ in measured})
    contexts = sorted({context for _, _, context in measured})
    times = [row["ms_per_token"] for row in cells.rows if row["batch"] in batches and "ms_per_token" in row]
    figure, panels = sheet(len(batches), len(shapes))
    scale(panels[0, 0], contexts)
    scale_up(panels[0, 0], [*times, *cells.weights_ms.values()])
    hardware = f"{document['hardware']['gpu']}, bfloat16, commit {document['commit']}"
    figure.suptitle(f"latency of a decode step\n{hardware}", fontsize=10)
    figure.supxlabel(_explained(cells, batches), fontsize=9)
    figure.supylabel("ms a token", fontsize=9)
    figure.draw_without_rendering()  # gives the panels their places, which labels need
    for row, batch in enumerate(batches):
        for column, shape in enumerate(shapes):
            _draw_panel(panels[row, column], cells, shape, batch, contexts)
    return to_png(figure)


def _explained(cells: Cells, batches: Sequence[int]) -> str:
    """Name the axis and what has no label in the panels: crosses, and budgets that are dots of one context."""
    lines = ["context, tokens (K = 1024)"]
    shown = [cell for cell in cells.cells if cell[1] in batches]
    if any(cells.loses(cell, per_head) for cell in shown for per_head in cells.budgets):
        lines.append("a cross: slower than the full cache")
    if dots := [str(per_head) for per_head in cells.budgets if not _is_line(cells, per_head)]:
        lines.append(f"single dots, from light to dark: budgets {', '.join(dots)}")
    return "\n".join(lines)


def _is_line(cells: Cells, per_head: int) -> bool:
    return len({row["context"] for row in cells.rows if row["cache"] == per_head}) > 1


def colours(budgets: Sequence[int]) -> dict[int, str]:
    """Give each budget its colour: the larger the darker."""
    chosen = BUDGETS if len(budgets) > 1 else BUDGETS[1:]
    return {per_head: chosen[place % len(chosen)] for place, per_head in enumerate(budgets)}


def _draw_panel(axes: Any, cells: Cells, shape: str, batch: int, contexts: list[int]) -> None:
    scale(axes, contexts)
    axes.set_title(f"{shape}, batch {batch}", fontsize=9)
    least = cells.weights_ms[shape]
    axes.plot([axes.get_xlim()[0], contexts[-1]], [least, least], color=GREY, linewidth=1, ls=":")
    ends: dict[str, tuple[float, float, str]] = {"weights once": (contexts[-1], least, GREY)}
    here: list[Cell] = [(shape, batch, context) for context in contexts]
    ends |= _draw_line(axes, "transformers", [cells.stock(cell) for cell in here], contexts, GREY)
    ends |= _draw_line(axes, "full cache", [cells.full(cell) for cell in here], contexts, FULL)
    for per_head, colour in colours(cells.budgets).items():
        found = [cells.budget(cell, per_head) for cell in here]
        end = _draw_line(axes, f"budget {per_head}", found, contexts, colour)
        ends |= end if _is_line(cells, per_head) else {}
        for cell, row in zip(here, found, strict=True):
            if row and cells.loses(cell, per_head):
                axes.plot(cell[2], row["ms_per_token"], "x", color="black", ms=6, mew=1.4, zorder=5)
    for cell in here:
        if (why := cells.failure(cell)) is not None:
            text = "full cache\ndoes not fit" if "fit" in why else "full cache\nfailed"
            axes.annotate(
                text, (cell[2], 0.97), xycoords=("data", "axes fraction"),
                ha="center", va="top", color=FULL, fontsize=LETTER - 1,
            )  # fmt: skip
    label_ends(axes, ends)


def _draw_line(
    axes: Any, name: str, rows: Sequence[Row | None], contexts: Sequence[int], colour: str
) -> dict[str, tuple[float, float, str]]:
    """Draw a line with gaps where nothing was measured; give its name and its end, or nothing for an empty line."""
    times = [row["ms_per_token"] if row else float("nan") for row in rows]
    axes.plot(contexts, times, color=colour, marker="o", ms=3.5, linewidth=1.5)
    ends = [(at, time) for at, time, row in zip(contexts, times, rows, strict=True) if row]
    return {name: (*ends[-1], colour)} if ends else {}
