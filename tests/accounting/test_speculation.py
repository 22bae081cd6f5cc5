"""What drafts cost, and how many pay: against sums over every outcome, and against brute force."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headscope as hs
from headscope.accounting.speculation import (
    accepted_ratio,
    best_gamma,
    break_even,
    costs,
    from_ratio,
    published_break_even,
    published_io,
    speed_up,
    tokens_per_round,
)

chances = st.floats(0, 1)
gammas = st.integers(1, 12)


def expected_tokens(acceptance: float, gamma: int) -> float:
    """Tokens of a round, summed over every outcome of its draft tokens."""
    total = 0.0
    for accepted in itertools.product([True, False], repeat=gamma):
        chance = 1.0
        for token in accepted:
            chance *= acceptance if token else 1 - acceptance
        run = len(list(itertools.takewhile(bool, accepted)))
        total += chance * (run + 1)
    return total


@settings(deadline=None)
@given(chances, st.integers(1, 8))
def test_a_round_gives_the_expected_run_of_accepted_tokens_and_one_more(acceptance: float, gamma: int) -> None:
    ratio = accepted_ratio(acceptance, gamma)
    assert tokens_per_round(ratio, gamma) == pytest.approx(expected_tokens(acceptance, gamma))


@settings(deadline=None)
@given(chances, gammas)
def test_the_ratio_says_the_chance_again(acceptance: float, gamma: int) -> None:
    ratio = accepted_ratio(acceptance, gamma)
    assert accepted_ratio(from_ratio(ratio, gamma), gamma) == pytest.approx(ratio, abs=1e-9)
    assert ratio <= acceptance + 1e-12  # later tokens need the earlier ones


@settings(deadline=None)
@given(chances, st.floats(0.01, 1.5), st.floats(0.5, 3), st.integers(1, 15))
def test_the_best_gamma_is_the_best_of_all(acceptance: float, draft: float, verify: float, most: int) -> None:
    best = best_gamma(acceptance, draft, verify, most)
    speeds = {0: 1.0} | {gamma: speed_up(acceptance, gamma, draft, verify) for gamma in range(1, most + 1)}
    assert speeds[best] == max(speeds.values())
    assert all(speed < speeds[best] for gamma, speed in speeds.items() if gamma < best)


@settings(deadline=None)
@given(chances, st.floats(0.01, 1), gammas)
def test_plain_decoding_wins_where_drafts_cost_more_than_they_are_accepted(
    acceptance: float, draft: float, gamma: int
) -> None:
    """With a verifying step as dear as a plain one, the acceptance that breaks even is the draft's cost."""
    ratio = accepted_ratio(acceptance, gamma)
    assert break_even(draft, gamma) == draft
    if abs(ratio - draft) > 1e-9:
        assert (speed_up(acceptance, gamma, draft) > 1) == (ratio > draft)
    assert (best_gamma(acceptance, draft) > 0) == (max(speed_up(acceptance, at, draft) for at in range(1, 16)) > 1)
    assert best_gamma(0, draft) == 0 and best_gamma(acceptance, 1.0) == 0


@settings(deadline=None)
@given(st.integers(1, 5000), st.integers(1, 100_000), gammas)
def test_at_its_break_even_the_published_formula_gives_plain_io(kept: int, context: int, gamma: int) -> None:
    ratio = published_break_even(kept, context, gamma)
    if ratio <= 1:
        assert published_io(kept, context, gamma, ratio) == pytest.approx(context)
        assert published_io(kept, context, gamma, min(1, ratio * 1.01)) <= context * (1 + 1e-9)


def test_a_verifying_step_may_cost_more_with_more_tokens() -> None:
    assert best_gamma(0.9, 0.3, lambda gamma: 1.0) == best_gamma(0.9, 0.3)
    assert best_gamma(0.9, 0.3, lambda gamma: 1 + 0.5 * gamma) < best_gamma(0.9, 0.3)
    assert break_even(0.3, 5, 2.0) == pytest.approx(0.5)


def test_costs_are_the_bytes_of_steps_with_less_cache() -> None:
    found = costs("qwen2-vl-7b", 32768, 1024, 8)
    plain, draft = (hs.account("qwen2-vl-7b", context=length, batch=8).step for length in (32768, 1024))
    assert (found.dense, found.draft) == (plain.total, draft.total)
    assert found.verify(9) == plain.total + 9 * plain.embedding  # ten rows of the table instead of one
    assert found.break_even(9) == pytest.approx(found.draft_cost, abs=1e-4)
    assert costs("qwen2-vl-7b", 1024, 4096).draft_cost == 1  # a draft that keeps everything


def test_a_verifying_step_uses_more_experts() -> None:
    found = costs("qwen3-30b-a3b", 32768, 1024)
    (layer,) = found.shape.kinds
    once, four = (48 * 2 * layer.expert * 128 * (1 - (1 - 8 / 128) ** tokens) for tokens in (1, 4))
    assert found.verify(3) - found.dense == pytest.approx(four - once + 3 * 2 * 2048)
    assert found.best_gamma(0.9) < best_gamma(0.9, found.draft_cost)
    assert found.break_even(3) > found.draft_cost


def test_activation_sparsity_makes_a_draft_cheaper() -> None:
    dense, sparse = (costs("llama-3.1-8b", 131072, 4096, keep_act=keep) for keep in (1.0, 0.5))
    account = hs.account("llama-3.1-8b", keep_act=0.5)
    assert dense.draft - sparse.draft == pytest.approx(account.savings.projection)


def test_bytes_a_token_are_those_of_a_round_over_its_tokens() -> None:
    found = costs("qwen2-vl-7b", 65536, 1024, 8)
    ratio = accepted_ratio(0.9, 5)
    assert found.dense / found.io(5, ratio) == pytest.approx(found.speed_up(0.9, 5))
    assert found.speed_up(0.9, 0) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: best_gamma(1.2, 0.5), "`acceptance` must be a number from 0 to 1, got 1.2"),
        (lambda: accepted_ratio(0.5, 0), "`gamma` must be a whole number above 0, got 0"),
        (lambda: best_gamma(0.5, 0.5, most=0), "`most` must be a whole number above 0, got 0"),
        (lambda: speed_up(0.5, 1, -1.0), "`draft_cost` and `verify_cost` must be above 0 together"),
        (lambda: costs("qwen3-8b", 1024, 0), "`kept` must be a whole number above 0, got 0"),
        (lambda: published_io(10, 100, 9, -0.1), "`ratio` must be a number from 0 to 1, got -0.1"),
    ],
)
def test_mistakes_are_told(call, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message):
        call()
