"""Stability: rank correlation, halves, bootstrap intervals, concentration, sinks."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from headscope.scores import stability

TIED = st.lists(st.integers(0, 4).map(float), min_size=3, max_size=12)


def test_equal_values_share_the_average_of_their_ranks():
    assert stability.ranks(np.array([3.0, 1, 3, 0, 3])).tolist() == [4, 2, 4, 1, 4]


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_the_rank_correlation_is_scipys(data):
    a = data.draw(TIED)
    b = data.draw(st.lists(st.integers(0, 4).map(float), min_size=len(a), max_size=len(a)))
    found = stability.spearman(np.array(a), np.array(b))
    if len(set(a)) == 1 or len(set(b)) == 1:
        assert found is None
    else:
        assert found == pytest.approx(stats.spearmanr(a, b).statistic, abs=1e-12)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 9), st.integers(1, 7), st.integers(1, 600), st.integers(0, 99))
def test_weighted_sums_are_the_matrix_product(pages, draws, heads, seed):
    generator = np.random.default_rng(seed)
    weights, values = generator.integers(0, 5, (draws, pages)), generator.random((pages, heads))
    np.testing.assert_allclose(stability.weighted_sums(weights, values), weights @ values, rtol=1e-12)


def test_pages_that_rank_heads_alike_agree_fully_and_opposite_halves_disagree():
    alike = np.outer([1, 2, 3, 4], np.arange(10.0))
    assert stability.split_half(alike) == pytest.approx(1)
    assert stability.split_half(np.array([np.arange(10.0), np.arange(10.0)[::-1]])) == pytest.approx(-1)


def test_noise_agrees_with_nothing():
    noise = np.random.default_rng(3).random((40, 200))
    assert abs(stability.split_half(noise)) < 0.15


def test_intervals_hold_the_mean_and_narrow_with_more_pages():
    draw = np.random.default_rng(0).random((400, 3))
    few, many = stability.intervals(draw[:25]), stability.intervals(draw)
    assert ((few[0] < draw[:25].mean(0)) & (draw[:25].mean(0) < few[1])).all()
    assert (many[1] - many[0] < 0.5 * (few[1] - few[0])).all()


def test_an_interval_is_that_of_the_normal_law_for_many_pages():
    draw = np.random.default_rng(1).normal(10, 1, (500, 4)).clip(0)
    low, high = stability.intervals(draw)
    error = draw.std(0) / np.sqrt(500)
    np.testing.assert_allclose(high - low, 2 * 1.96 * error, rtol=0.12)


def test_drawing_again_gives_the_same_numbers():
    draw = np.random.default_rng(2).random((9, 4, 5))
    key = cell = np.ones((4, 5), np.int64)
    assert stability.summarise(draw, key, cell, 7) == stability.summarise(draw, key, cell, 7)


def test_concentration_is_the_share_of_the_best_heads():
    values = np.array([[8.0, 1, 1, 0], [0] * 4, [0] * 4, [0] * 4, [0] * 4])
    assert stability.concentration(values, 0.05) == pytest.approx(0.8)
    assert stability.concentration(values, 0.10) == pytest.approx(0.9)
    assert stability.concentration(np.zeros((2, 2)), 0.05) is None


def test_a_share_of_heads_is_at_least_one_head():
    assert [stability.count_of(0.05, heads) for heads in (1, 9, 144, 784)] == [1, 1, 7, 39]


def test_shares_of_sinks_count_over_all_heads_and_rows():
    pages = np.ones((2, 1, 4))
    found = stability.summarise(pages, np.array([[10, 0, 0, 0]]), np.array([[5, 5, 0, 0]]), credited=10)
    assert found["share_first_key"] == 0.25
    assert found["share_first_cell"] == 0.25


@pytest.mark.parametrize("count", [0, 1])
def test_what_one_page_cannot_tell_is_null_never_nan(count):
    pages = np.ones((count, 2, 3))
    found = stability.summarise(pages, np.zeros((2, 3), np.int64), np.zeros((2, 3), np.int64), credited=count)
    assert found["split_half"] is None
    assert [head["interval"] for head in found["top"]] == [None] * (6 * count)
    json.dumps(found, allow_nan=False)


def test_pages_of_equal_heads_have_no_rank_correlation():
    zeros = np.zeros((4, 2, 3))
    found = stability.summarise(zeros, np.zeros((2, 3), np.int64), np.zeros((2, 3), np.int64), credited=0)
    assert found["split_half"] is None
    assert found["share_top_5_percent"] is None
    assert found["share_first_key"] is None
    json.dumps(found, allow_nan=False)


def test_the_top_heads_are_ten_or_a_tenth_and_at_most_64():
    for shape, expected in (((2, 3), 6), ((12, 12), 14), ((28, 28), 64), ((80, 64), 64)):
        key = np.zeros(shape, np.int64)
        pages = np.random.default_rng(0).random((2, *shape))
        top = stability.summarise(pages, key, key, 1)["top"]
        best = np.argsort(-pages.mean(0).reshape(-1))[:expected]
        assert [head["layer"] * shape[1] + head["head"] for head in top] == best.tolist()
        assert all(head["interval"][0] <= head["score"] <= head["interval"][1] for head in top)
