"""The head map: a picture of all scores, layer x head."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscope.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from headscope.scores import HeadScores

COLOURS = "cividis"  # even steps look even, and look alike to colour-blind eyes
RING = "#ff5a36"
UNITS = {"hit": "hit score, mean per page", "mass": "attention on the word being read, mean per page"}
DPI = 160
MARKED = 10
LARGEST, SMALLEST, SIDE = 0.34, 0.1, 8.5  # inches: a cell of a small model, one of a large model, the map's longer side
LEFT, RIGHT, TOP, BOTTOM, GAP, BAR = 0.7, 0.85, 0.5, 0.6, 0.15, 0.14  # inches around the map


def draw(scores: HeadScores, path: str | Path, title: str | None = None, mark: int = MARKED) -> Path:
    """Write the head map as a PNG, whole or not at all; no display is needed.

    mark: how many of the best heads get a ring, at most a quarter of all (0: none).
    """
    return write_atomically(path, render(scores, title, mark))


def render(scores: HeadScores, title: str | None = None, mark: int = MARKED) -> bytes:
    """Draw the head map and give the PNG's bytes; the same scores give the same bytes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = _figure(scores, title or str(scores.model.get("id") or "head scores"), mark)
    FigureCanvasAgg(figure)
    png = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a title in letters that the font lacks
        figure.savefig(png, format="png", dpi=DPI, metadata={"Software": None})
    return png.getvalue()


def _figure(scores: HeadScores, title: str, mark: int) -> Figure:
    from matplotlib.figure import Figure

    layers, heads, kv_heads = scores.geometry
    cell = min(LARGEST, max(SMALLEST, SIDE / max(layers, heads)))
    across, down = heads * max(cell, 1.8 / heads), layers * max(cell, 1.8 / layers)
    width, height = LEFT + across + GAP + BAR + RIGHT, TOP + down + BOTTOM
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((LEFT / width, BOTTOM / height, across / width, down / height))
    values = scores.values.numpy()
    top = float(values.max()) or 1.0
    image = axes.imshow(values, cmap=COLOURS, vmin=0.0, vmax=top, interpolation="nearest", aspect="auto")
    bar = figure.add_axes(((LEFT + across + GAP) / width, BOTTOM / height, BAR / width, down / height))
    _explain(figure.colorbar(image, cax=bar), scores)
    _label(axes, scores)
    _separate_groups(axes, layers, heads, heads // kv_heads)
    _ring(axes, scores, min(mark, layers * heads // 4), min(across / heads, down / layers))
    _entitle(figure, title, width, height)
    return figure


def _explain(bar: Any, scores: HeadScores) -> None:
    bar.set_label(UNITS.get(str(scores.probe.get("statistic")), "score"), fontsize=8.5)
    bar.ax.tick_params(labelsize=8, length=2)
    bar.outline.set_visible(False)


def _entitle(figure: Figure, title: str, width: float, height: float) -> None:
    """Write the title from the left edge; one that is too long loses its beginning, which says least."""
    title = title.encode(errors="replace").decode()
    most = int((width - 0.3) / 0.092)  # inches that a letter takes, at most, in this size
    title = title if len(title) <= most else "…" + title[1 - most :]
    figure.text(0.15 / width, 1 - 0.22 / height, title, fontsize=10.5, fontweight="bold", va="center", parse_math=False)


def _label(axes: Axes, scores: HeadScores) -> None:
    from matplotlib.ticker import MaxNLocator

    layers, heads, kv_heads = scores.geometry
    shared = f", {heads // kv_heads} to a KV head" if kv_heads < heads else ""
    axes.set_xlabel(f"head{shared}", fontsize=9)
    axes.set_ylabel("layer", fontsize=9)
    for axis, count in ((axes.xaxis, heads), (axes.yaxis, layers)):
        axis.set_major_locator(MaxNLocator(nbins=min(count, 16), integer=True, steps=[1, 2, 4, 5, 8, 10]))
    axes.set_xlim(-0.5, heads - 0.5)
    axes.set_ylim(layers - 0.5, -0.5)
    axes.tick_params(labelsize=8, length=2)
    axes.spines[:].set_visible(False)


def _separate_groups(axes: Axes, layers: int, heads: int, group: int) -> None:
    """Draw a faint line between the heads of one KV head and the next."""
    if group > 1:
        edges = [first - 0.5 for first in range(group, heads, group)]
        axes.vlines(edges, -0.5, layers - 0.5, colors="white", linewidth=0.8, alpha=0.35)


def _ring(axes: Axes, scores: HeadScores, mark: int, cell: float) -> None:
    """Ring the best heads; a head that scored nothing is not one of them. cell: its smaller side, in inches."""
    best = [(layer, head) for layer, head, score in scores.top(mark) if score > 0] if mark > 0 else []
    if best:
        layers, heads = zip(*best, strict=True)
        points = (
            72 * cell * (1 if cell > SMALLEST * 2 else 1.4)
        )  # the ring lies inside a large cell, around a small one
        axes.scatter(heads, layers, s=points**2, facecolors="none", edgecolors=RING, linewidths=1.6, clip_on=False)
