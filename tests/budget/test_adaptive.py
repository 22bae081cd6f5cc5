"""The adaptive rule: a layer's heads compete for its tokens, the window aside."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.budget import allocate, rules
from headscope.budget.adaptive import _won
from headscope.scores import HeadScores

# Two heads, eight tokens, the last two in the window; head 0 holds four of the six most important tokens.
TOKENS = torch.tensor([[[9, 8, 7, 1, 6, 0, 99, 99], [5, 4, 0, 0, 0, 0, 0, 0]]]).float()


def adaptive(total, importances=TOKENS, prompt=None, window=2, **more):
    return rules.adaptive(torch.zeros(importances.shape[:2]), total, window, prompt, importances=importances, **more)


def test_without_a_floor_each_head_keeps_what_it_won():
    assert adaptive(4 + 6, floor=0).tolist() == [[2 + 4, 2 + 2]]


def test_the_floor_is_the_part_that_all_heads_get():
    assert adaptive(4 + 6, floor=1).tolist() == [[2 + 3, 2 + 3]]
    assert adaptive(4 + 5).tolist() == [[2 + 4, 2 + 1]]  # .2 * 2.5 + .8 * [4, 1] = [3.7, 1.3]


def test_the_window_s_own_importances_do_not_count():
    quiet = TOKENS.clone()
    quiet[..., -2:] = 0
    assert torch.equal(adaptive(10, quiet), adaptive(10))


def test_of_equal_importances_the_lowest_head_and_token_come_first():
    assert adaptive(4 + 5, torch.ones(1, 2, 8), floor=0).tolist() == [[2 + 5, 2]]
    assert adaptive(4 + 8, torch.ones(1, 2, 8), floor=0).tolist() == [[2 + 6, 2 + 2]]


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 4), st.integers(0, 12), st.integers(0, 5), st.integers(0, 99))
def test_the_winners_are_the_first_of_a_stable_sort(kv_heads, tokens, levels, seed):
    source = torch.Generator().manual_seed(seed)
    drawn = torch.randint(0, levels + 1, (kv_heads, tokens), generator=source).double()
    for many in range(kv_heads * tokens + 1):
        order = drawn.flatten().argsort(descending=True, stable=True)[:many]
        assert _won(drawn.numpy(), many).tolist() == [
            int((order // max(tokens, 1) == kv).sum()) for kv in range(kv_heads)
        ]


def test_layers_get_the_same_whatever_their_importances():
    kept = adaptive(4 * 4 + 1, torch.cat([TOKENS, TOKENS * 100]), window=2)
    assert kept.sum(-1).tolist() == [9, 8]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int64])
def test_importances_of_any_dtype_count(dtype):
    assert torch.equal(adaptive(10, TOKENS.to(dtype)), adaptive(10))


def test_the_prompt_is_as_long_as_its_importances_say():
    budget = allocate(
        HeadScores.from_values([[1, 1]]), total=10, rule="adaptive", window=2, importances=TOKENS, floor=0
    )
    assert (budget.prompt, budget.kept.tolist()) == (8, [[6, 4]])
    assert budget.settings["floor"] == 0 and set(budget.settings["importances"]) == {"shape", "sha256"}
    assert (
        allocate(HeadScores.from_values([[1, 1]]), ratio_kept=0.5, rule="adaptive", window=2, importances=TOKENS).total
        == 8
    )


@pytest.mark.parametrize(
    ("importances", "prompt", "match"),
    [
        (None, None, r"`importances` must be a tensor \[1, 2, prompt\]: `adaptive` plans for one prompt"),
        (TOKENS[0], None, r"`importances` must be \[1, 2, prompt\], got \[2, 8\]"),
        (TOKENS, 9, r"`importances` must be \[1, 2, 9\], got \[1, 2, 8\]"),
        (TOKENS[..., :0], None, r"`importances` must be \[1, 2, prompt\], got \[1, 2, 0\]"),
        (torch.cat([TOKENS, TOKENS]), None, r"`importances` must be \[1, 2, prompt\], got \[2, 2, 8\]"),
        (TOKENS.where(TOKENS != 5, torch.nan), None, r"`importances` must be finite, got nan at \[0, 1, 0\]"),
    ],
)
def test_importances_that_do_not_fit_are_refused(importances, prompt, match):
    with pytest.raises(ValueError, match=match):
        rules.adaptive(torch.zeros(1, 2), 10, 2, prompt, importances=importances)


@pytest.mark.parametrize("floor", [-0.1, 1.5, True, float("nan")])
def test_a_floor_is_a_part(floor):
    with pytest.raises(ValueError, match="`floor` must be a number from 0 to 1"):
        adaptive(10, floor=floor)
