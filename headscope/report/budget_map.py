"""The budget map: scores and the tokens they earn side by side, layer x head and layer x KV head."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from headscope.files import write_atomically
from headscope.report import head_map

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from headscope.budget import Budget
    from headscope.scores import HeadScores

ROOM = 0.3  # inches: the smallest cell, either way, that a number fits into


def draw(scores: HeadScores, budget: Budget, path: str | Path, title: str | None = None) -> Path:
    """Write the scores and the budget as one PNG, whole or not at all; no display is needed."""
    return write_atomically(path, render(scores, budget, title))


def render(scores: HeadScores, budget: Budget, title: str | None = None) -> bytes:
    """Draw scores and budget and give the PNG's bytes; the same ones give the same bytes.

    Both maps have the same size: a KV head is as wide as the query heads that it serves.
    """
    budget.check(scores.layers, scores.kv_heads)
    figure = head_map.sheet(scores, 2)
    head_map.show(figure, scores)
    head_map.entitle(figure, title or str(scores.model.get("id") or "head scores"), 0, 2)
    _show(figure, scores, budget)
    length = "" if budget.prompt is None else f"of {budget.prompt} "
    head_map.entitle(figure, f"{budget.rule}: {budget.per_head:.6g} {length}tokens a head", 1, 2)
    return head_map.to_png(figure)


def _show(figure: Figure, scores: HeadScores, budget: Budget) -> None:
    axes, bar = head_map.panel(figure, scores, 1)
    kept = budget.kept.numpy()
    image = axes.imshow(kept, cmap=head_map.COLOURS, vmin=0, vmax=kept.max(), interpolation="nearest", aspect="auto")
    head_map.explain(figure.colorbar(image, cax=bar), "prompt tokens kept")
    head_map.label(axes, budget.layers, budget.kv_heads, "KV head")
    across, down = head_map.area(scores)
    if min(across / budget.kv_heads, down / budget.layers) >= ROOM:
        _number(axes, kept)


def _number(axes: Axes, kept: np.ndarray) -> None:
    """Write each number of tokens into its cell, dark on bright and bright on dark."""
    for (layer, kv), tokens in np.ndenumerate(kept):
        colour = "black" if tokens > 0.6 * kept.max() else "white"
        axes.text(kv, layer, str(tokens), ha="center", va="center", fontsize=7.5, color=colour)
