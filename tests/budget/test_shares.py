"""Shares: water-filling with one lambda, and rounding that spends all, against oracles written another way."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.budget.shares import apportion, fill

SCORES = st.lists(st.sampled_from([0.0, 0.0, 1e-9, 0.1, 0.3, 1.0, 1.0, 7.5, 1e6]), min_size=1, max_size=9)


def doubles(values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def bisected(scores: list[float], total: float, least: float, most: float) -> list[float]:
    """Find lambda by bisection, the rest by what the rule says when no lambda spends it all."""
    if total >= (full := sum(most if score else least for score in scores)) - 1e-9:
        bare = scores.count(0.0)
        return [most if score else least + (total - full) / bare for score in scores]
    low, high = 0.0, 1e20
    for _ in range(300):
        middle = (low + high) / 2
        spent = sum(min(most, least + middle * score) for score in scores)
        low, high = (middle, high) if spent < total else (low, middle)
    return [min(most, least + low * score) for score in scores]


@settings(max_examples=300, deadline=None)
@given(SCORES, st.integers(1, 60), st.floats(0, 1), st.floats(0, 1))
def test_filling_is_what_bisection_finds(values, most, filled, ratio):
    if not any(values):
        values[0] = 1.0
    total = round(filled * most * len(values))
    least = ratio * total / len(values)
    shares = fill(doubles(values), total, least, most)
    assert shares.tolist() == pytest.approx(bisected(values, total, least, most), rel=1e-6, abs=1e-6)
    assert float(shares.sum()) == pytest.approx(total, abs=1e-9 * max(1, total))


def test_what_full_heads_cannot_take_goes_to_the_others_by_the_same_lambda():
    assert fill(doubles([10, 2, 1, 1]), 56, 0, 20).tolist() == pytest.approx([20, 18, 9, 9])
    assert fill(doubles([10, 0, 0, 0]), 64, 1.6, 28).tolist() == [28, 12, 12, 12]


def test_remainders_within_a_millionth_tie_and_the_lowest_head_comes_first():
    assert apportion(doubles([0.5, 1.5, 2.5, 3.5]), 8, 9).tolist() == [1, 2, 2, 3]
    assert apportion(doubles([1.5 - 4e-7, 1.5 + 4e-7, 2.0]), 5, 9).tolist() == [2, 1, 2]
    assert apportion(doubles([1.5 - 4e-6, 1.5 + 4e-6, 2.0]), 5, 9).tolist() == [1, 2, 2]


def test_a_share_a_hair_below_a_whole_number_is_that_number():
    assert apportion(doubles([3 - 1e-12, 2.5, 2.5 + 1e-12]), 8, 9).tolist() == [3, 3, 2]


def test_a_full_head_takes_nothing_more():
    assert apportion(doubles([5 - 1e-9, 4.4, 4.6]), 14, 5).tolist() == [5, 4, 5]
    assert apportion(doubles([5.0, 5.0]), 10, 5).tolist() == [5, 5]


def test_of_tied_heads_the_higher_score_comes_first_and_noise_is_no_higher_score():
    shares = doubles([1.5, 1.5, 1.0])
    assert apportion(shares, 4, 9, doubles([0, 1e-30, 1])).tolist() == [1, 2, 1]
    assert apportion(shares, 4, 9, doubles([1, 1 + 1e-9, 1])).tolist() == [2, 1, 1]
    assert apportion(doubles([1.5, 12.5]), 14, 20, doubles([1, 9])).tolist() == [2, 12]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, 400), min_size=1, max_size=12), st.integers(1, 64))
def test_rounding_spends_all_and_moves_no_share_by_one(sixteenths, most):
    shares = doubles(sixteenths) / 16
    shares = shares.clamp_max(most)
    shares[0] += shares.sum().ceil() - shares.sum() if shares[0] < most else 0
    if shares[0] > most or shares.sum() % 1:
        return
    given = apportion(shares, int(shares.sum()), most)
    assert int(given.sum()) == int(shares.sum())
    assert (given - shares).abs().max() < 1
    assert given.min() >= 0 and given.max() <= most


@pytest.mark.parametrize("seed", range(5))
def test_the_most_tokens_among_many_heads_are_spent_to_the_last(seed):
    scores = torch.rand(5120, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) ** 9
    total = 2**40 - seed
    shares = fill(scores, total, 0.1 * total / 5120, total // 100)
    assert int(apportion(shares, total, total // 100, scores).sum()) == total


def test_nothing_to_divide_is_nothing():
    assert fill(doubles([1, 0]), 0, 0.0, 0).tolist() == [0, 0]
    assert apportion(doubles([0, 0]), 0, 0).tolist() == [0, 0]
