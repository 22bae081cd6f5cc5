"""Comparison: what two score files agree about."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.scores import HeadScores, diff
from headscope.scores.compare import Move


def test_a_file_agrees_with_itself(record, scores, tmp_path):
    scores([record(0)]).save(tmp_path / "a.json")
    found = diff(tmp_path / "a.json", str(tmp_path / "a.json"))
    assert found.rank_correlation == pytest.approx(1)
    assert [(at.k, at.share) for at in found.overlaps] == [(1, 1.0)]
    assert found.moves == ()
    assert found.settings == ()


def test_the_largest_moves_come_first():
    a, b = HeadScores.from_values([[4, 3], [2, 1]]), HeadScores.from_values([[4, 1], [2, 3]])
    found = diff(a, b, k=[1, 2], moves=1)
    assert found.moves == (Move(0, 1, 2.0, 4.0, 3.0, 1.0),)
    assert [(at.k, at.shared) for at in found.overlaps] == [(1, 1), (2, 1)]
    assert len(diff(a, b).moves) == 2


def test_reversed_scores_disagree_fully():
    a = np.arange(1, 41.0).reshape(4, 10)
    found = diff(HeadScores.from_values(a), HeadScores.from_values(a[::-1, ::-1]))
    assert found.rank_correlation == pytest.approx(-1)
    assert [(at.k, at.shared) for at in found.overlaps] == [(2, 0), (4, 0)]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 999))
def test_swapping_the_files_mirrors_the_result(seed):
    a, b = np.random.default_rng(seed).integers(0, 5, (2, 3, 4)).astype(float)
    there = diff(HeadScores.from_values(a), HeadScores.from_values(b))
    back = diff(HeadScores.from_values(b), HeadScores.from_values(a))
    assert there.rank_correlation == back.rank_correlation
    assert there.overlaps == back.overlaps
    assert there.moves == tuple(Move(m.layer, m.head, m.rank_b, m.rank_a, m.score_b, m.score_a) for m in back.moves)


def test_scaling_all_scores_moves_nothing():
    a = np.random.default_rng(0).random((3, 4))
    assert diff(HeadScores.from_values(a), HeadScores.from_values(a * 7)).moves == ()


def test_equal_scores_have_no_correlation_to_speak_of():
    found = diff(HeadScores.from_values([[0, 0]]), HeadScores.from_values([[1, 2]]))
    assert found.rank_correlation is None
    assert str(found).startswith("rank correlation of all heads: undefined")


def test_settings_that_differ_are_listed(record, scores):
    found = diff(scores([record(0)]), scores([record(0)], statistic="mass", ocr={"engine": "easyocr", "version": "1"}))
    assert ("probe.statistic", "hit", "mass") in found.settings
    assert ("probe.ocr.engine", "words", "easyocr") in found.settings
    assert len(found.settings) == 2
    assert "probe.statistic: 'hit' -> 'mass'" in str(found)
    assert dataclasses.asdict(found)["settings"] == found.settings


def test_another_geometry_is_an_error(tmp_path):
    HeadScores.from_values(np.ones((3, 4)), kv_heads=2).save(tmp_path / "b.json")
    with pytest.raises(ValueError, match=r"`.*b.json`: expected 2 layers x 4 heads with 2 KV heads, found 3 layers"):
        diff(HeadScores.from_values(np.ones((2, 4)), kv_heads=2), tmp_path / "b.json")
    with pytest.raises(ValueError, match="`diff` needs one score a head in both files, found 8 and 4"):
        diff(HeadScores.from_values(np.ones((2, 4)), kv_heads=2), HeadScores.from_values(np.ones((2, 2))))


@pytest.mark.parametrize("k", [0, 5, [1, -1]])
def test_k_is_a_number_of_heads(k):
    scores = HeadScores.from_values([[1, 2], [3, 4]])
    with pytest.raises(ValueError, match="`k` must be 1 to 4 heads, got"):
        diff(scores, scores, k=k)


def test_less_than_no_move_is_refused():
    a = HeadScores.from_values([[1, 2]])
    with pytest.raises(ValueError, match="`moves` must be at least 0, got -1"):
        diff(a, a, moves=-1)
