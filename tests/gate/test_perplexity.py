"""The rise of perplexity: exact where it can be, and an interval that pairs tokens."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.gate.perplexity import BLOCK, Blocks, blocks, perplexity, rise

Losses = list[list[float]]


def cut(windows: Losses) -> list[Blocks]:
    return [blocks([-loss for loss in window]) for window in windows]


def drawn(seed: int, spread: float = 1.0, windows: int = 6, tokens: int = 100) -> np.ndarray:
    return 2 + spread * np.random.default_rng(seed).standard_normal((windows, tokens))


losses = st.lists(st.lists(st.floats(0, 8), min_size=1, max_size=80), min_size=1, max_size=4)


@given(losses)
@settings(max_examples=25, deadline=None)
def test_perplexity_is_exp_of_the_mean_loss_over_all_tokens(windows: Losses) -> None:
    flat = [loss for window in windows for loss in window]
    assert perplexity(cut(windows)) == pytest.approx(math.exp(sum(flat) / len(flat)))
    assert [sum(block.tokens for block in window) for window in cut(windows)] == [len(window) for window in windows]
    assert all(block.tokens <= BLOCK for window in cut(windows) for block in window)


@given(losses)
@settings(max_examples=10, deadline=None)
def test_the_same_losses_rise_by_nothing_and_that_is_certain(windows: Losses) -> None:
    found = rise(cut(windows), cut(windows))
    assert (found.rise, found.low, found.high) == (0, 0, 0)


def test_a_rise_that_all_tokens_have_alike_is_known_far_better_than_the_perplexity() -> None:
    """That is what pairing is for: texts differ more from each other than a text from itself."""
    dense = drawn(0)
    paired = rise(cut(dense.tolist()), cut((dense + 0.1).tolist()))
    assert paired.rise == pytest.approx(paired.dense * (math.exp(0.1) - 1))
    apart = rise(cut(dense.tolist()), cut((drawn(1) + 0.1).tolist()))
    assert paired.high - paired.low < 0.2 * (apart.high - apart.low)
    assert 0 < paired.low < paired.rise < paired.high


@pytest.mark.parametrize("seed", range(4))
def test_the_interval_holds_the_estimate_and_repeats_by_seed(seed: int) -> None:
    dense, configured = drawn(seed), drawn(seed) + np.abs(drawn(seed + 10)) * 0.05
    first = rise(cut(dense.tolist()), cut(configured.tolist()), seed=seed)
    assert first.low < first.rise < first.high
    assert first == rise(cut(dense.tolist()), cut(configured.tolist()), seed=seed)
    assert first != rise(cut(dense.tolist()), cut(configured.tolist()), seed=seed + 1)


def test_the_interval_covers_the_true_rise_about_as_often_as_it_says() -> None:
    """Noise around a known rise, 60 times; two levels of drawing are a little too careful, never much too bold."""
    held = 0
    for seed in range(60):
        random = np.random.default_rng(seed)
        dense = 1 + 0.3 * random.standard_normal((8, 64))
        configured = dense + 0.2 + 0.2 * random.standard_normal((8, 64))
        found = rise(cut(dense.tolist()), cut(configured.tolist()), seed=seed)
        held += found.low <= math.e * (math.exp(0.2) - 1) <= found.high
    assert held >= 53


def test_windows_differ_in_weight_by_their_tokens() -> None:
    found = rise(cut([[1.0] * 90, [3.0] * 10]), cut([[1.0] * 90, [3.0] * 10]))
    assert found.dense == pytest.approx(math.exp(1.2)) and (found.tokens, found.windows) == (100, 2)


@pytest.mark.parametrize("other", [[[1.0] * 3], [[1.0] * 4, [1.0]], []])
def test_windows_of_other_tokens_are_refused(other: Losses) -> None:
    with pytest.raises(ValueError, match="`configured` must hold the same windows of tokens as `dense`"):
        rise(cut([[1.0] * 4]), cut(other))


def test_nothing_to_compare_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one; measure both alike"):
        rise([], [])
