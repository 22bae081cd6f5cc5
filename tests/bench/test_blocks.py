"""Blocks: their order, their intervals, and where an advantage turns."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headscope.bench.blocks import check_blocks, interval, rotated, said, turning, zero


def test_each_block_begins_with_the_next_item() -> None:
    assert [rotated("abc", block) for block in range(4)] == [list("abc"), list("bca"), list("cab"), list("abc")]


def test_the_interval_is_students() -> None:
    """Five blocks: 2.776 standard errors to each side."""
    mean, low, high = interval([1.0, 2.0, 3.0, 4.0, 5.0])
    half = 2.776 * statistics.stdev([1, 2, 3, 4, 5]) / math.sqrt(5)
    assert (mean, low, high) == pytest.approx((3.0, 3 - half, 3 + half))
    assert interval([2.0, 4.0])[2] == pytest.approx(3 + 12.706 * math.sqrt(2) / math.sqrt(2))


def test_one_block_has_no_interval() -> None:
    assert said(interval([2.0])) == {"mean": 2.0, "low": None, "high": None}


@given(st.floats(-1e5, 2e5), st.floats(1e-5, 1), st.lists(st.integers(0, 131072), min_size=2, max_size=8, unique=True))
def test_a_lines_zero_is_found_where_it_lies_between_contexts(start: float, slope: float, contexts: list[int]) -> None:
    line = {context: slope * (context - start) for context in contexts}
    found = zero(line)
    if min(contexts) <= start < max(contexts):
        assert found == pytest.approx(start, abs=1e-3)
    else:
        assert found is None
    assert turning(line) == pytest.approx(start, abs=1.0)


def test_of_several_turns_it_is_the_mean() -> None:
    assert zero({0: -1.0, 10: 1.0, 20: -1.0, 30: 1.0}) == 15.0


def test_what_does_not_rise_turns_nowhere() -> None:
    assert turning({1: 2.0, 2: 1.0}) is None and turning({1: 2.0}) is None and zero({}) is None


@pytest.mark.parametrize("blocks", [0, 11])
def test_blocks_without_an_interval_here_are_refused(blocks: int) -> None:
    with pytest.raises(ValueError, match=f"`blocks` must be a whole number from 1 to 10, got {blocks}"):
        check_blocks(blocks)
