"""The report's page: one HTML file that holds everything it shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from headscope.files import write_atomically
from headscope.report import overlay
from headscope.report.head_map import render
from headscope.report.view import PageView

if TYPE_CHECKING:
    from headscope.scores import HeadScores

ROWS = 14  # heads in the table: 10 % of a 12 x 12 model
PART = "{:.1%}".format
TILES = {
    "split_half": ("rank correlation between halves of the pages", "{:.3f}".format),
    "share_top_5_percent": ("score held by the best 5 % of heads", PART),
    "share_top_10_percent": ("score held by the best 10 %", PART),
    "share_first_key": ("arg maxes on the first key", PART),
    "share_first_cell": ("arg maxes on a picture's first cell", PART),
}
KEY = (
    '<p class="key soft">Choose a token (click, or the arrow keys) to see where heads looked when they wrote it.<br>'
    '<span><i style="background: var(--heat)"></i>attention, one scale for all pictures of a token</span>'
    '<span><i style="border: 2px solid var(--word)"></i>the word it was credited to</span>'
    '<span><i style="border: 1px dashed var(--word)"></i>its cells</span></p>'
)


def write(path: str | Path, scores: HeadScores, views: Sequence[PageView] = ()) -> Path:
    """Write the report as one self-contained HTML file, whole or not at all.

    views: pages to show; without any, the report has the head map, the best heads and how they were found.
    """
    html = render_page(scores, views)
    return write_atomically(path, html.encode(errors="replace"))  # a file's name need not be Unicode


def render_page(scores: HeadScores, views: Sequence[PageView] = ()) -> str:
    """Give the report's HTML."""
    shown = "\n".join(overlay.section(view, place) for place, view in enumerate(views))
    parts = {
        "title": escape(f"Head scores: {scores.model.get('id') or 'a model'}"),
        "subtitle": f"{scores.layers} layers × {scores.heads} heads, {scores.kv_heads} KV heads in a layer",
        "tiles": _tiles(scores),
        "map": overlay.data_uri(render(scores), "png"),
        "table": _table(scores),
        "sheets": "\n".join(overlay.sheet(view, place) for place, view in enumerate(views)),
        "views": f"<h2>Heads at work</h2>\n{KEY}\n{shown}" if views else "",
        "facts": _facts(scores),
    }
    return Template(Path(__file__).with_name("page.html").read_text(encoding="utf-8")).substitute(parts)


def _tiles(scores: HeadScores) -> str:
    probe, tiles = scores.probe, {}
    if "pages" in probe:
        tiles["pages"] = f"{probe['pages']}" + (
            f", {probe['pages_failed']} failed" if probe.get("pages_failed") else ""
        )
    if "credited" in probe:
        tiles["answer tokens credited"] = f"{probe['credited']} of {probe.get('tokens')}"
    for key, (label, write_number) in TILES.items():
        if scores.summary.get(key) is not None:
            tiles[label] = write_number(scores.summary[key])
    return "".join(f"<div><dt>{escape(label)}</dt><dd>{escape(value)}</dd></div>" for label, value in tiles.items())


def _table(scores: HeadScores) -> str:
    best = scores.top(min(ROWS, scores.values.numel()))
    bounds = {(top["layer"], top["head"]): top.get("interval") for top in scores.summary.get("top", [])}
    most = max([best[0][2], *(interval[1] for interval in bounds.values() if interval)]) or 1.0
    group = scores.heads // scores.kv_heads
    rows = (
        f"<tr><td>{rank}</td><td>{layer}</td><td>{head}</td><td>{head // group}</td><td>{score:.4g}</td>"
        f"<td>{_interval(bounds.get((layer, head)))}</td><td>{_bar(score, bounds.get((layer, head)), most)}</td></tr>"
        for rank, (layer, head, score) in enumerate(best, start=1)
    )
    heading = (
        "<tr><th>rank</th><th>layer</th><th>head</th><th>KV head</th><th>score</th><th>95 % interval</th><th></th></tr>"
    )
    return f"<table>{heading}{''.join(rows)}</table>"


def _interval(bounds: Sequence[float] | None) -> str:
    return f"{bounds[0]:.3g} – {bounds[1]:.3g}" if bounds else "–"


def _bar(score: float, bounds: Sequence[float] | None, most: float) -> str:
    """Draw a score as a bar, with its interval as a line through the bar's end."""
    low, high = (100 * bound / most for bound in bounds or (score, score))
    line = f'<path class="reach" d="M{low:.2f} 6H{high:.2f}"/>' if bounds else ""
    bar = f'<rect class="bar" width="{100 * score / most:.2f}" y="2" height="8"/>'
    return f'<svg viewBox="0 0 100 12" preserveAspectRatio="none">{bar}{line}</svg>'


def _facts(scores: HeadScores) -> str:
    cards = {"Model": scores.model, "Probe": scores.probe, "Software": scores.software}
    lists = [(name, _flat(facts)) for name, facts in cards.items()]
    if scores.failed:
        lists.append(("Pages that failed", [(page.name, page.reason) for page in scores.failed]))
    return "\n".join(_card(name, facts) for name, facts in lists if facts)


def _card(name: str, facts: Sequence[tuple[str, Any]]) -> str:
    rows = "".join(f"<dt>{escape(key)}</dt><dd>{escape(str(value))}</dd>" for key, value in facts)
    return f'<div class="card"><h3>{escape(name)}</h3><dl class="facts">{rows}</dl></div>'


def _flat(facts: Mapping[str, Any], before: str = "") -> list[tuple[str, Any]]:
    """List nested facts under dotted names; what is not known is left out."""
    listed: list[tuple[str, Any]] = []
    for key, value in facts.items():
        if isinstance(value, Mapping):
            listed += _flat(value, f"{before}{key}.")
        elif value is not None:
            listed.append((f"{before}{key}", ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else value))
    return listed
