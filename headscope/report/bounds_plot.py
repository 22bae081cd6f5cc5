"""The plot of an account's bounds: how much faster each branch can make a step, against the context."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headscope.files import write_atomically

LINES = {  # the branch's key: its name, colour (Okabe and Ito's), mark, stroke
    "projection": ("projections", "#0072b2", "o", "-"),
    "kv": ("cache", "#e69f00", "s", "--"),
    "both": ("both", "#009e73", "^", "-."),
}


def draw(
    points: Sequence[Mapping[str, float]], crossover_tokens: float | None, path: str | Path, title: str = ""
) -> Path:
    """Write the plot as a PNG, whole or not at all; no display is needed.

    points: `context` and the bounds `projection`, `kv` and `both` there, as `Account.curve` gives them.
    """
    return write_atomically(path, render(points, crossover_tokens, title))


def render(points: Sequence[Mapping[str, float]], crossover_tokens: float | None, title: str = "") -> bytes:
    """Draw the plot and give the PNG's bytes; the crossover is a dotted line where it lies in view."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    axes = figure.add_subplot()
    contexts = [point["context"] for point in points]
    for name, (label, colour, mark, stroke) in LINES.items():
        bounds = [point[name] for point in points]
        marked = [at for at, context in enumerate(contexts) if math.log2(context).is_integer()]
        axes.plot(contexts, bounds, color=colour, marker=mark, markevery=marked, ls=stroke, ms=5, label=label)
    if crossover_tokens is not None and contexts[0] <= crossover_tokens <= contexts[-1]:
        label = f"crossover, {crossover_tokens / 1024:.1f}K"
        axes.axvline(crossover_tokens, color="#666666", ls=":", linewidth=1.5, label=label)
    _scale(axes, contexts)
    axes.set(xlabel="context, tokens (K = 1024)", ylabel="speed-up at most")
    axes.set_title(title, fontsize=10)
    axes.grid(color="#eeeeee")
    axes.legend(loc="upper left", frameon=False)
    FigureCanvasAgg(figure)
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=160, metadata={"Software": None})
    return png.getvalue()


def _scale(axes: Any, contexts: Sequence[float]) -> None:
    """Let contexts double along the axis, named where they are a power of two."""
    axes.set_xscale("log", base=2)
    doubled = [context for context in contexts if math.log2(context).is_integer()]
    axes.set_xticks(doubled, [f"{context / 1024:g}K" for context in doubled])
    axes.minorticks_off()
    axes.set_ylim(bottom=min(1.0, axes.get_ylim()[0]))
