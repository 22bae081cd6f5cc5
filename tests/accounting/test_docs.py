"""What docs/account.md and the README say of bytes is what the account gives."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import headscope as hs
from headscope.accounting.document import to_json
from headscope.accounting.ledger import FINE
from headscope.accounting.speculation import best_gamma
from headscope.cli import account_text
from headscope.report.bounds_plot import render

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "account.md").read_text(encoding="utf-8")
K = 1024


def rows(first: str) -> list[list[str]]:
    """The rows of the page's table whose first column is headed so."""
    lines = PAGE[PAGE.index(f"| {first} |") :].split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.parametrize("row", rows("model"), ids=" ".join)
def test_the_crossovers_of_the_page_are_the_accounts(row: list[str]) -> None:
    act, kv = (float(part.strip(" %")) / 100 for part in row[1].split("/"))
    found = hs.account(row[0].strip("`"), keep_act=act, keep_kv=kv)
    assert row[2:] == [f"{found.crossover_tokens / K:.1f}K", f"{found.crossover_feed_forward_tokens / K:.1f}K"]


@pytest.mark.parametrize("row", rows("batch"), ids=" ".join)
def test_the_drafts_of_the_page_are_the_accounts(row: list[str]) -> None:
    context, batch = int(row[1].strip("K")) * K, int(row[0])
    account = hs.account("qwen2-vl-7b", context=context, batch=batch, draft_tokens=K)
    gamma = account.costs.best_gamma(0.9)
    assert row[2:5] == [f"{account.costs.draft_cost:.2f}", str(gamma), f"{account.costs.speed_up(0.9, gamma):.2f}x"]
    weights = account.memory.weights
    cost = (weights + batch * K * 57344) / (weights + account.step.kv)
    assert row[5] == f"{cost:.2f}, gamma {best_gamma(0.9, cost)}"


def test_the_batches_of_the_page_are_the_accounts() -> None:
    account = hs.account("llama-3.1-8b", keep_act=0.5, keep_kv=0.3)
    one, two, four = (f"{account.at(batch=batch).crossover_tokens / K:.1f}K" for batch in (1, 2, 4))
    assert f"crosses at {one} tokens alone, {two} in a batch of 2, {four} in a batch of 4" in PAGE


def test_the_plot_of_the_page_is_the_accounts() -> None:
    account = hs.account("llama-3.1-8b", keep_act=0.5, keep_kv=0.3)
    title = "Llama-3.1-8B, batch 1\n50% of activations kept, 30% of the cache"
    drawn = Image.open(io.BytesIO(render(account.curve(FINE), account.crossover_tokens, title))).convert("RGB")
    shown = Image.open(ROOT / "docs" / "account.png").convert("RGB")
    assert shown.size == drawn.size
    different = np.abs(np.asarray(shown, int) - np.asarray(drawn, int)).max(axis=-1) > 60
    assert different.mean() < 0.01  # fonts may differ a little between versions


def test_the_readme_shows_what_the_command_prints() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    account = hs.account("llama-3.1-8b", context=131072, name="meta-llama/Llama-3.1-8B-Instruct")
    printed = account_text.of(to_json(account)).split("\n\nspeculation")[0]
    assert "\n".join(f"    {line}" if line else "" for line in printed.splitlines()) in readme
