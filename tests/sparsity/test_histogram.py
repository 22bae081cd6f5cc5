"""Histograms of magnitudes: streamed, in fixed memory, and as exact as their bins are wide."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.sparsity.histogram import BINS, RESOLUTION, Histogram


def of(values: torch.Tensor, pieces: int = 1) -> Histogram:
    histogram = Histogram()
    for piece in values.chunk(pieces):
        histogram.add(piece)
    return histogram


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000), st.floats(0, 1), st.floats(-8, 6), st.integers(1, 3000))
def test_a_threshold_is_a_sorted_quantile_within_a_bin(seed: int, sparsity: float, scale: float, count: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(count, generator=generator) * 10**scale
    threshold, kept = of(values).threshold(sparsity)
    assert kept == pytest.approx(float((values.abs() > threshold).float().mean()), abs=1e-6)
    ordered = values.abs().sort().values
    at = min(int(sparsity * count), count - 1)
    low, high = ordered[max(at - 1, 0)], ordered[min(at + 1, count - 1)]
    assert threshold <= high * (1 + 2 * RESOLUTION)
    assert threshold == 0 or threshold >= low * (1 - 2 * RESOLUTION)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10_000), st.floats(0, 0.95))
def test_the_kept_part_is_within_half_a_bin_of_what_was_asked(seed: int, sparsity: float) -> None:
    values = torch.randn(5000, generator=torch.Generator().manual_seed(seed))
    assert abs(of(values).threshold(sparsity)[1] - (1 - sparsity)) < 0.005


def test_pieces_give_what_the_whole_gives() -> None:
    values = torch.randn(1000, 3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(of(values).counts, of(values, pieces=7).counts)
    assert of(values).total == 3000


def test_memory_does_not_grow_with_what_is_counted() -> None:
    histogram = Histogram()
    before = histogram.counts.nbytes
    for _ in range(5):
        histogram.add(torch.randn(20_000) * 1e30)
    assert histogram.counts.nbytes == before == 8 * BINS


def test_bfloat16_values_are_told_apart_exactly() -> None:
    values = torch.arange(128, dtype=torch.float32).div(128).add(1).to(torch.bfloat16)  # every one from 1 to 2
    for place in (1, 50, 127):
        threshold, kept = of(values).threshold(place / 128)
        assert int((values.float() > threshold).sum()) == 128 - place == round(kept * 128)


def test_nothing_to_leave_out_is_threshold_0() -> None:
    assert of(torch.randn(100)).threshold(0.0) == (0.0, 1.0)
    assert of(torch.ones(100)).threshold(0.3) == (0.0, 1.0)  # equal values are kept or left out together


def test_zeros_and_what_is_not_finite_are_counted_at_the_ends() -> None:
    histogram = of(torch.tensor([0.0, 0.0, 1.0, torch.inf, torch.nan, -torch.inf]))
    assert histogram.counts[0] == 2 and histogram.counts[-1] == 3
    threshold, kept = histogram.threshold(1 / 3)
    assert 0 < threshold < 1 and kept == pytest.approx(2 / 3)
    assert histogram.threshold(0.99)[1] == pytest.approx(1 / 2)
