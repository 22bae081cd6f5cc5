"""Draw the README's figures from what ships: ``python docs/figures.py``."""

from __future__ import annotations

from pathlib import Path

import headscope as hs
from headscope.page.image import decode
from headscope.page.source import bundled
from headscope.report import budget_map, figure
from headscope.resources import find

HERE = Path(__file__).parent
SHOWN = "probe/008.png"  # a form in larger print


def main() -> None:
    """Draw a page beside the head map, and the head map beside a budget."""
    scores = hs.HeadScores.load(find("scores", "reader-22m.json"))
    page = next(page for page in bundled("probe") if page.name == SHOWN)
    figure.draw(decode(page.source), page.words or (), scores, HERE / "figure.png")
    budget = hs.allocate(scores, per_head=64, window=16, prompt=110)
    budget_map.draw(scores, budget, HERE / "budget.png")


if __name__ == "__main__":
    main()
