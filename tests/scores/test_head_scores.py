"""Head scores: what they accept, how they reduce, what they average."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from headscope.scores import FailedPage, HeadScores

FINITE = st.floats(0, 1000, width=32)


@pytest.mark.parametrize(
    "values",
    [
        [[0, 0.5], [1, 2]],
        np.array([[0, 0.5], [1, 2]], np.float16),
        np.array([[0, 0.5], [1, 2]])[::-1][::-1],
        torch.tensor([[0, 0.5], [1, 2]], dtype=torch.bfloat16, requires_grad=True),
    ],
)
def test_any_array_tensor_or_list_becomes_the_same_float32_scores(values):
    scores = HeadScores.from_values(values, kv_heads=1)
    assert scores.values.dtype == torch.float32
    assert scores.values.tolist() == [[0, 0.5], [1, 2]]
    assert scores.geometry == (2, 2, 1)


def test_scores_keep_their_own_copy_of_the_values():
    values = torch.ones(2, 2)
    scores = HeadScores.from_values(values)
    values[0, 0] = -1
    assert scores.values.tolist() == [[1, 1], [1, 1]]


def test_without_kv_heads_every_head_has_its_own():
    assert HeadScores.from_values([[1, 2, 3]]).kv_heads == 3


@pytest.mark.parametrize(
    ("bad", "found"),
    [(float("nan"), "nan"), (float("inf"), "inf"), (-1.0, "-1.0"), (1e39, "1e[+]39"), (-1e-50, "-1e-50")],
)
def test_a_score_that_is_no_score_is_refused_with_its_head(bad, found):
    with pytest.raises(ValueError, match=rf"finite float32 .* found {found} at layer 1, head 2"):
        HeadScores.from_values([[0, 0, 0], [0, 0, bad]])


@pytest.mark.parametrize("values", [[1, 2], [[[1]]], [], [[]], np.zeros((0, 4))])
def test_scores_that_are_no_matrix_are_refused_with_their_shape(values):
    with pytest.raises(ValueError, match=r"`values` must be \[layer, head\], got shape"):
        HeadScores.from_values(values)


@pytest.mark.parametrize("values", [[[1, 2], [3]], [["1"]], [[None]], None, [[True]], torch.ones(1, 1) * 1j])
def test_scores_that_are_no_numbers_are_refused(values):
    with pytest.raises(ValueError, match="`values` must be numbers"):
        HeadScores.from_values(values)


@pytest.mark.parametrize("kv_heads", [0, 3, -2, 2.0, True, 8])
def test_kv_heads_must_divide_the_heads(kv_heads):
    with pytest.raises(ValueError, match="`kv_heads` must divide the 4 heads of a layer, got"):
        HeadScores.from_values([[1, 2, 3, 4]], kv_heads=kv_heads)


def test_all_zero_scores_are_scores():
    assert HeadScores.from_values([[0, 0]]).top(1) == [(0, 0, 0.0)]


def test_query_heads_belong_to_kv_heads_in_contiguous_groups():
    assert HeadScores.from_values([[1, 0, 0, 0], [0, 0, 1, 0]], kv_heads=2).kv().tolist() == [[1, 0], [0, 1]]


def test_groups_reduce_by_sum_mean_or_max():
    scores = HeadScores.from_values([[1, 3, 0, 5]], kv_heads=2)
    assert scores.kv("sum").tolist() == [[4, 5]]
    assert scores.kv("mean").tolist() == [[2, 2.5]]
    assert scores.kv("max").tolist() == [[3, 5]]
    with pytest.raises(ValueError, match="`reduce` must be one of sum, mean, max, got 'means'; did you mean mean"):
        scores.kv("means")


def test_the_best_heads_come_first_and_ties_in_order():
    scores = HeadScores.from_values([[1, 3], [3, 2]])
    assert scores.top(3) == [(0, 1, 3.0), (1, 0, 3.0), (1, 1, 2.0)]
    assert len(scores.top(99)) == 4
    with pytest.raises(ValueError, match="`k` must be at least 1, got 0"):
        scores.top(0)


@settings(max_examples=25, deadline=None)
@given(arrays.arrays(np.float32, st.tuples(st.integers(1, 4), st.integers(1, 3)), elements=FINITE), st.integers(1, 3))
def test_kv_sums_hold_the_whole_of_the_scores(values, group):
    scores = HeadScores.from_values(np.repeat(values, group, axis=1), kv_heads=values.shape[1])
    np.testing.assert_allclose(scores.kv().numpy(), values * np.float32(group), rtol=1e-6)
    np.testing.assert_array_equal(scores.kv("max").numpy(), values)


def test_scores_of_kv_heads_do_not_pass_for_those_of_query_heads():
    of_kv_heads = HeadScores.from_values(np.ones((3, 2)))
    assert of_kv_heads.check((3, 8, 2)) is of_kv_heads
    with pytest.raises(
        ValueError, match="a score for each of the 8 query heads of a layer, found one for each of its 2"
    ):
        of_kv_heads.check((3, 8, 2), query_heads=True)
    HeadScores.from_values(np.ones((3, 8)), kv_heads=2).check((3, 8, 2), query_heads=True)


def test_scores_of_another_geometry_are_refused_before_a_model_is_loaded():
    scores = HeadScores.from_values(np.ones((32, 32)), kv_heads=8)
    with pytest.raises(ValueError, match=r"expected 28 layers x 28 heads with 4 KV heads, found 32 layers x 32 heads"):
        scores.check(SimpleNamespace(layers=28, heads=28, kv_heads=4))
    assert scores.check((32, 32, 8)) is scores


def test_one_score_a_kv_head_fits_the_model_too():
    HeadScores.from_values(np.ones((28, 4)), kv_heads=4).check((28, 28, 4))
    with pytest.raises(ValueError, match="imported with another `kv_heads`"):
        HeadScores.from_values(np.ones((28, 28))).check((28, 28, 4))


def test_values_are_the_mean_of_the_statistic_over_decoded_pages(record, scores):
    records = [record(place) for place in range(4)]
    failed = [FailedPage("bad.png", "cut off")]
    for statistic in ("hit", "mass"):
        made = scores(records, failed, statistic=statistic)
        expected = sum(getattr(page, statistic) for page in sorted(records, key=lambda page: page.key)) / 4
        assert torch.equal(made.values, expected.float())


def test_the_probe_says_what_was_counted(record, scores):
    probe = scores([record(0), record(1)], [FailedPage("bad.png", "cut off")]).probe
    counted = {key: probe[key] for key in ("pages", "pages_failed", "words", "cropped", "tokens", "credited")}
    assert counted == {"pages": 2, "pages_failed": 1, "words": 10, "cropped": 1, "tokens": 24, "credited": 16}
    assert probe["pages_hash"] == scores([record(1), record(0)]).probe["pages_hash"]
    assert probe["pages_hash"] != scores([record(2), record(0)]).probe["pages_hash"]


def test_the_order_of_pages_changes_nothing(record, scores, tmp_path):
    records = [record(place) for place in range(9)]
    scores(records).save(tmp_path / "a.json")
    scores(records[::-1]).save(tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_a_probe_without_pages_has_zeros_of_the_right_shape(scores):
    made = scores([], [FailedPage("bad.png", "cut off")])
    assert made.values.tolist() == [[0] * 4] * 3
    assert made.summary["top"] == []
    assert made.summary["split_half"] is None


def test_an_unknown_statistic_is_refused(record, scores):
    with pytest.raises(ValueError, match="`statistic` must be one of hit, mass, got 'hits'"):
        scores([record(0)], statistic="hits")


def test_records_of_another_geometry_are_refused(record, scores):
    with pytest.raises(ValueError, match=r"page 'page-1.png': expected 3 layers x 4 heads, found \(2, 4\)"):
        scores([record(0), record(1, layers=2)])


def test_pages_are_kept_where_asked_and_in_every_shard(record, scores):
    assert scores([record(0)], keep_pages=False).pages is None
    assert len(scores([record(0)], keep_pages=True).pages) == 1
    assert len(scores([record(0)], keep_pages=False, shard="1/2").pages) == 1
