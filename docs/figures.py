"""Draw the figures of README and docs from what ships: ``python docs/figures.py``."""

from __future__ import annotations

from pathlib import Path

import headscope as hs
from headscope.accounting.ledger import FINE
from headscope.page.image import decode
from headscope.page.source import bundled
from headscope.report import bounds_plot, budget_map, figure
from headscope.resources import find

HERE = Path(__file__).parent
SHOWN = "probe/008.png"  # a form in larger print


def main() -> None:
    """Draw a page beside the head map, the head map beside a budget, and the bounds of an account."""
    scores = hs.HeadScores.load(find("scores", "reader-22m.json"))
    page = next(page for page in bundled("probe") if page.name == SHOWN)
    figure.draw(decode(page.source), page.words or (), scores, HERE / "figure.png")
    budget = hs.allocate(scores, per_head=64, window=16, prompt=110)
    budget_map.draw(scores, budget, HERE / "budget.png")
    account = hs.account("llama-3.1-8b", keep_act=0.5, keep_kv=0.3)
    title = "Llama-3.1-8B, batch 1\n50% of activations kept, 30% of the cache"
    bounds_plot.draw(account.curve(FINE), account.crossover_tokens, HERE / "account.png", title)


if __name__ == "__main__":
    main()
