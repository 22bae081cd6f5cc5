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
    return to_png(_figure(scores, title or str(scores.model.get("id") or "head scores"), mark))


def to_png(figure: Figure) -> bytes:
    """Give a figure as a PNG that holds no clock time and no version."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)
    png = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a title in letters that the font lacks
        figure.savefig(png, format="png", dpi=DPI, metadata={"Software": None})
    return png.getvalue()


def _figure(scores: HeadScores, title: str, mark: int) -> Figure:
    figure = sheet(scores, 1)
    show(figure, scores, mark)
    entitle(figure, title)
    return figure


def sheet(scores: HeadScores, panels: int) -> Figure:
    """Give an empty figure with room for maps of this model's shape, side by side."""
    from matplotlib.figure import Figure

    across, down = area(scores)
    return Figure(figsize=(panels * (LEFT + across + GAP + BAR + RIGHT), TOP + down + BOTTOM))


def area(scores: HeadScores) -> tuple[float, float]:
    """Give the width and height, in inches, of a map with a cell for every head."""
    layers, heads, _ = scores.geometry
    cell = min(LARGEST, max(SMALLEST, SIDE / max(layers, heads)))
    return heads * max(cell, 1.8 / heads), layers * max(cell, 1.8 / layers)


def panel(figure: Figure, scores: HeadScores, place: int) -> tuple[Axes, Axes]:
    """Add the axes of the map at a place (0: the leftmost), and those of its colour bar."""
    width, height = figure.get_size_inches()
    across, down = area(scores)
    left = LEFT + place * (LEFT + across + GAP + BAR + RIGHT)
    bar = ((left + across + GAP) / width, BOTTOM / height, BAR / width, down / height)
    return figure.add_axes((left / width, BOTTOM / height, across / width, down / height)), figure.add_axes(bar)


def show(figure: Figure, scores: HeadScores, mark: int = MARKED) -> None:
    """Draw the scores at the leftmost place, the best of them ringed."""
    layers, heads, kv_heads = scores.geometry
    across, down = area(scores)
    axes, bar = panel(figure, scores, 0)
    values = scores.values.numpy()
    top = float(values.max()) or 1.0
    image = axes.imshow(values, cmap=COLOURS, vmin=0.0, vmax=top, interpolation="nearest", aspect="auto")
    explain(figure.colorbar(image, cax=bar), UNITS.get(str(scores.probe.get("statistic")), "score"))
    label(axes, layers, heads, f"head, {heads // kv_heads} to a KV head" if kv_heads < heads else "head")
    _separate_groups(axes, layers, heads, heads // kv_heads)
    _ring(axes, scores, min(mark, layers * heads // 4), min(across / heads, down / layers))


def explain(bar: Any, unit: str) -> None:
    """Say beside a colour bar what its colours mean."""
    bar.set_label(unit, fontsize=8.5)
    bar.ax.tick_params(labelsize=8, length=2)
    bar.outline.set_visible(False)


def entitle(figure: Figure, title: str, place: int = 0, panels: int = 1) -> None:
    """Write a title above the map at a place; one that is too long loses its beginning, which says least."""
    width, height = figure.get_size_inches()
    title = title.encode(errors="replace").decode()
    most = int((width / panels - 0.3) / 0.092)  # inches that a letter takes, at most, in this size
    title = title if len(title) <= most else "…" + title[1 - most :]
    left = 0.15 / width + place / panels
    figure.text(left, 1 - 0.22 / height, title, fontsize=10.5, fontweight="bold", va="center", parse_math=False)


def label(axes: Axes, layers: int, columns: int, across: str) -> None:
    """Number the layers and the columns, and say what the columns are."""
    from matplotlib.ticker import FixedLocator, MaxNLocator

    axes.set_xlabel(across, fontsize=9)
    axes.set_ylabel("layer", fontsize=9)
    for axis, count in ((axes.xaxis, columns), (axes.yaxis, layers)):
        some = MaxNLocator(nbins=min(count, 16), integer=True, steps=[1, 2, 4, 5, 8, 10])
        axis.set_major_locator(some if count > 1 else FixedLocator([0]))
    axes.set_xlim(-0.5, columns - 0.5)
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
