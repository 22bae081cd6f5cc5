"""Panels: what plots against the context share: its axis, labels at the ends of lines, and the PNG."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

GREY = "#666666"
LETTER = 7.5  # points: the size of labels


def sheet(rows: int, columns: int, together: bool = True) -> tuple[Any, np.ndarray]:
    """Make a figure with panels [row, column]. together: they share the axis across too, not only the upright one."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.2 + 3.1 * columns, 0.9 + 2.7 * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, sharex=together, sharey=True, squeeze=False)


def scale(axes: Any, contexts: Sequence[int]) -> None:
    """Let contexts double along the axis, and leave a third of its length free for labels."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(contexts, [f"{context / 1024:g}K" for context in contexts])
    axes.minorticks_off()
    first, last = contexts[0] / 1.3, contexts[-1]
    axes.set_xlim(first, last * max(2.0, last / first) ** 0.42)
    axes.tick_params(labelsize=8)
    axes.grid(color="#eeeeee")


def scale_up(axes: Any, values: Sequence[float]) -> None:
    """Make the upright axis logarithmic, from a round number (1, 2, 3, 5 and their tens) to another, around values."""
    powers = range(int(np.floor(np.log10(min(values)))), int(np.ceil(np.log10(max(values)))) + 1)
    round_numbers = [digit * 10.0**power for power in powers for digit in (1, 2, 3, 5)]
    least = max(number for number in round_numbers if number <= min(values))
    most = min(number for number in round_numbers if number >= max(values))
    ticks = [number for number in round_numbers if least <= number <= most]
    axes.set_yscale("log")
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_ylim(least / 1.08, most * 1.08)


def label_ends(axes: Any, ends: Mapping[str, tuple[float, float, str]]) -> None:
    """Write each line's name, in its colour, beside its end (x, y, colour); names are moved apart, not over others.

    Both axes must have their scales and limits.
    """
    pixels = axes.transData.transform([end[:2] for end in ends.values()]) if ends else []
    height = LETTER * 1.15 * axes.figure.dpi / 72
    places = spread([place[1] for place in pixels], height)
    for (name, (_, _, colour)), (across, _), up in zip(ends.items(), pixels, places, strict=True):
        x, y = axes.transData.inverted().transform((across + 0.6 * height, up))
        axes.text(x, y, name, color=colour, fontsize=LETTER, va="center")


def spread(places: Sequence[float], gap: float) -> list[float]:
    """Move places apart until neighbours are a gap from each other, in the same order, as a group where they were."""
    groups: list[tuple[float, list[int]]] = []  # centre, members from below
    for member in sorted(range(len(places)), key=lambda at: places[at]):
        centre, members = places[member], [member]
        while groups and centre - groups[-1][0] < gap * (len(members) + len(groups[-1][1])) / 2:
            below, under = groups.pop()
            centre = (below * len(under) + centre * len(members)) / (len(under) + len(members))
            members = under + members
        groups.append((centre, members))
    moved = [0.0] * len(places)
    for centre, members in groups:
        for rank, member in enumerate(members):
            moved[member] = centre + gap * (rank - (len(members) - 1) / 2)
    return moved


def to_png(figure: Any) -> bytes:
    """Give the PNG's bytes; the same figure gives the same bytes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=160, metadata={"Software": None})
    return png.getvalue()
