"""Budgets: who is within one, and the paper's crossovers at equal quality."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headscope as hs
from headscope.accounting.crossover import Keep
from headscope.bench.budgets import Setting, equal_quality, keep_at, within

PAPER = [  # 32K of WikiText-2 on Llama-3.1-8B; single branches, with rises that the paper prints or that fit its table
    Setting(Keep(1, 1), 0.0, 5.0),
    Setting(Keep(1, 0.2), 0.004, 4.2),
    Setting(Keep(1, 0.1), 0.06, 4.1),
    Setting(Keep(0.7, 1), 0.142, 4.0),
    Setting(Keep(0.6, 1), 0.398, 3.7),
    Setting(Keep(0.5, 1), 0.959, 3.4),
    Setting(Keep(0.7, 0.2), 0.146, 3.3),
    Setting(Keep(0.6, 0.2), 0.402, 3.0),
    Setting(Keep(0.5, 0.2), 0.963, 2.7),
]


@pytest.mark.parametrize(("budget", "best"), [(0.05, (1, 0.2)), (0.1, (1, 0.1)), (0.2, (0.7, 0.2)), (1.0, (0.5, 0.2))])
def test_the_fastest_within_a_budget(budget: float, best: tuple[float, float]) -> None:
    assert within(PAPER, budget)[0].keep == Keep(*best)


def test_the_fastest_single_branch_is_told_apart() -> None:
    assert within(PAPER, 1.0, single=True)[0].keep == Keep(0.5, 1)
    assert all(each.single for each in within(PAPER, 1.0, single=True))


def test_the_dense_setting_is_in_every_budget() -> None:
    noisy = [Setting(Keep(1, 1), 0.5, 5.0), Setting(Keep(1, 0.2), 0.6, 4.0)]
    assert [each.keep for each in within(noisy, 0.1)] == [Keep(1, 1)]


@pytest.mark.parametrize(("budget", "tokens"), [(0.5, 48.1), (1.0, 57.8)])
def test_the_papers_crossovers_at_equal_quality(budget: float, tokens: float) -> None:
    """K tokens; the KV branch at its lowest ratio, the projection branch on the line between its own."""
    found = equal_quality(PAPER, budget, hs.account("llama-3.1-8b"))
    assert found["keep_kv"] == 0.1
    assert found["crossover_tokens"] / 1024 == pytest.approx(tokens, abs=0.4)


@given(st.lists(st.tuples(st.floats(0.1, 0.9), st.floats(0, 2)), max_size=5), st.floats(0, 2), st.floats(0, 2))
def test_a_larger_budget_never_keeps_more(points: list[tuple[float, float]], first: float, second: float) -> None:
    low, high = sorted((first, second))
    kept = keep_at(points, low), keep_at(points, high)
    assert kept == (None, None) if not points else kept[1] <= kept[0] <= 1


def test_a_branch_that_saves_nothing_within_the_budget_has_no_crossover() -> None:
    assert equal_quality(PAPER[:3], 0.2, hs.account("llama-3.1-8b"))["crossover_tokens"] is None
    assert keep_at([(0.5, 0.0), (0.3, 1.0)], 0.5) == pytest.approx(0.4)
