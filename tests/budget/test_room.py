"""Room: what is left to divide once every head has its window."""

from __future__ import annotations

import pytest
import torch

from headscope.budget.room import Room

SCORES = torch.zeros(2, 3)


def test_the_windows_come_first():
    assert Room.of(SCORES, 6 * 64 + 1, 32, None) == Room(2, 3, 32, 6 * 32 + 1, 6 * 32 + 1)
    assert Room.of(SCORES, 6 * 64, 32, 100) == Room(2, 3, 32, 6 * 32, 68)


def test_nothing_beyond_the_prompt_counts():
    assert Room.of(SCORES, 6 * 64, 32, 40) == Room(2, 3, 32, 6 * 8, 8)
    assert Room.of(SCORES, 6 * 64, 32, 5) == Room(2, 3, 5, 0, 0)
    assert Room.of(SCORES, 6 * 32, 32, 32).base == 0


def test_windows_are_added_back_to_the_right_heads():
    kept = Room.of(SCORES, 6 * 64, 32, None).kept(torch.arange(6))
    assert kept.tolist() == [[32, 33, 34], [35, 36, 37]]


def test_more_than_fp64_divides_exactly_is_refused_where_the_prompt_is_not_shorter():
    with pytest.raises(ValueError, match="at most 1099511627776 tokens can be divided exactly, got"):
        Room.of(SCORES, 2**41, 32, None)
    assert Room.of(SCORES, 2**41, 32, 100).spare == 6 * 68


def test_less_than_the_windows_is_refused():
    with pytest.raises(
        ValueError, match="at most `per_head`.* got window 32 and 31.8333 tokens a head; lower `window`"
    ):
        Room.of(SCORES, 6 * 32 - 1, 32, None)
