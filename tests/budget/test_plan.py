"""Plans: what is asked in any of five ways, by any rule, becomes a budget that says what it was made of."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch

import headscope as hs
from headscope.budget import allocate, rules
from headscope.budget.plan import find_rule
from headscope.scores import HeadScores

SCORES = HeadScores.from_values(np.arange(24).reshape(3, 8), 4, id="tiny", head_dim=32)


def test_the_readme_s_call_works():
    budget = hs.allocate(SCORES, per_head=64, rule="sparsemm", window=32, ratio=0.1, prompt=110)
    assert (budget.total, budget.window, budget.prompt, budget.rule) == (12 * 64, 32, 110, "sparsemm")
    assert budget.settings == {"ratio": 0.1, "paper_rounding": False}
    assert budget.model == SCORES.model
    assert budget.scores["reduce"] == "sum" and len(budget.scores["sha256"]) == 64


@pytest.mark.parametrize(
    "asked",
    [
        {"per_head": 40},
        {"total": 480},
        {"ratio_kept": 0.4},
        {"bytes": 480 * 128 + 5},
        {"gib": 480 * 256 / 2**30, "batch": 2},
    ],
)
def test_the_same_amount_said_in_any_way_is_the_same_budget(asked):
    expected = allocate(SCORES, per_head=40, prompt=100)
    assert torch.equal(allocate(SCORES, prompt=100, **asked).kept, expected.kept)


def test_memory_for_a_context_plans_for_a_prompt_of_that_length():
    assert allocate(SCORES, gib=1, context=50).prompt == 50
    assert allocate(SCORES, gib=1, context=50, prompt=40).prompt == 40


def test_scores_come_from_files_and_tools_too(tmp_path):
    SCORES.save(tmp_path / "scores.json")
    assert torch.equal(allocate(tmp_path / "scores.json", per_head=64).kept, allocate(SCORES, per_head=64).kept)
    assert torch.equal(allocate(str(tmp_path / "scores.json"), per_head=64).kept, allocate(SCORES, per_head=64).kept)


def test_a_model_without_shipped_scores_says_which_file_and_how_to_make_it(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"`scores/Qwen9.5-VL.json` does not ship.* `headscope probe model=Qwen/Qwen9"
    ):
        allocate("Qwen/Qwen9.5-VL", per_head=64)
    with pytest.raises(FileNotFoundError, match="nowhere.json`: expected a head-score file, found no file"):
        allocate(tmp_path / "nowhere.json", per_head=64)
    with pytest.raises(FileNotFoundError, match="nowhere.json`: expected a head-score file, found no file"):
        allocate("nowhere.json", per_head=64)


def test_query_heads_become_one_score_as_asked():
    scores = HeadScores.from_values([[4, 0, 3, 3]], 2)
    kept = {
        reduce: allocate(scores, per_head=64, ratio=0, reduce=reduce).kept[0] - 32 for reduce in ("sum", "mean", "max")
    }
    assert kept["sum"].tolist() == kept["mean"].tolist() == [26, 38]
    assert kept["max"].tolist() == [37, 27]
    with pytest.raises(ValueError, match="`reduce` must be one of sum, mean, max, got 'som'"):
        allocate(scores, per_head=64, reduce="som")


def test_scores_whose_sums_exceed_float32_count_as_they_are():
    huge = HeadScores.from_values(np.float32([[3e38, 3e38, 1e38, 2e38]]), 2)
    assert torch.equal(
        allocate(huge, per_head=64).kept, allocate(HeadScores.from_values([[3, 3, 1, 2]], 2), per_head=64).kept
    )


def test_what_the_prompt_took_from_some_heads_for_others_is_told():
    scores = HeadScores.from_values([[1, 1, 1, 97]])
    free, capped = allocate(scores, per_head=64), allocate(scores, per_head=64, prompt=100)
    assert (free.moved, free.lost) == (0, 0)
    assert capped.moved == int(free.kept[0, 3]) - 100 == int((capped.kept - free.kept)[0, :3].sum())
    assert capped.lost == 0


def test_what_finds_no_place_is_told():
    whole = allocate(SCORES, per_head=64, prompt=50)
    assert (whole.total, whole.asked, whole.lost, whole.moved) == (12 * 50, 12 * 64, 12 * 14, 0)
    scores = HeadScores.from_values([[1, 1, 1, 97]])
    published = allocate(scores, per_head=64, prompt=100, paper_rounding=True)
    assert published.moved == 0 and published.lost > 40


def test_full_needs_no_amount_and_ignores_one():
    for asked in ({}, {"per_head": 3}, {"total": 7}):
        budget = allocate(SCORES, rule="full", prompt=50, **asked)
        assert (budget.total, budget.lost, budget.moved) == (12 * 50, 0, 0)
    with pytest.raises(ValueError, match="`prompt` must be the prompt's length in tokens for `full`"):
        allocate(SCORES, rule="full")


def test_a_function_is_a_rule():
    def first_layers(scores, total, window, prompt, /, *, many=1):
        kept = torch.full(scores.shape, window)
        kept[:many] += 8
        return kept

    budget = allocate(SCORES, per_head=64, rule=first_layers, window=4, many=2, prompt=60)
    assert budget.kept.tolist() == [[12] * 4, [12] * 4, [4] * 4]
    assert (budget.rule, budget.settings) == ("first_layers", {"many": 2})
    assert torch.equal(
        allocate(SCORES, per_head=64, rule=rules.pyramid).kept, allocate(SCORES, per_head=64, rule="pyramid").kept
    )


def test_a_function_may_be_anything_that_can_be_called():
    def scaled(scores, total, window, prompt, scale, **more):
        return torch.full(scores.shape, window * scale)

    budget = allocate(SCORES, per_head=64, rule=scaled, scale=np.int64(2), colour="red")
    assert (budget.per_head, budget.settings) == (64, {"scale": 2, "colour": "red"})
    assert allocate(SCORES, per_head=64, rule=functools.partial(rules.headkv, beta=2)).rule == "partial"


def test_numbers_of_numpy_are_numbers(tmp_path):
    budget = allocate(
        SCORES, per_head=np.int64(64), window=np.int32(16), prompt=np.int64(100), seed=np.int64(2), rule="random"
    )
    budget.save(tmp_path / "budget.json")
    assert torch.equal(
        hs.Budget.load(tmp_path / "budget.json").kept,
        allocate(SCORES, per_head=64, window=16, prompt=100, seed=2, rule="random").kept,
    )


def test_what_a_function_gives_is_checked():
    with pytest.raises(ValueError, match="`kept` must be at least 32 .* got 0 at layer 0, KV head 0"):
        allocate(SCORES, per_head=64, rule=lambda scores, total, window, prompt: torch.zeros(3, 4, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"`rule` must give one number a KV head, \[3, 4\], got \[4, 3\]"):

        def wrong(scores, total, window, prompt):
            return torch.full((4, 3), 64)

        allocate(SCORES, per_head=64, rule=wrong)


def test_a_ratio_is_for_rules_that_have_one():
    assert torch.equal(allocate(SCORES, per_head=64, rule="uniform", ratio=0.5).kept, torch.full((3, 4), 64))
    with pytest.raises(
        ValueError, match="`beta` is not a setting of the rule sparsemm, which has ratio, paper_rounding"
    ):
        allocate(SCORES, per_head=64, beta=2)
    with pytest.raises(ValueError, match="`beta` is not a setting of the rule uniform, which has none"):
        allocate(SCORES, per_head=64, rule="uniform", beta=2)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"window": 0}, "`window` must be a whole number of tokens above 0, got 0"),
        ({"window": 8.0}, "`window` must be a whole number of tokens above 0, got 8.0"),
        ({"prompt": 0}, "`prompt` must be a whole number of tokens above 0, got 0"),
        ({"prompt": 9.5}, "`prompt` must be a whole number of tokens above 0, got 9.5"),
        ({"per_head": 31}, "`window` must be at most `per_head`"),
        ({"rule": "sparsm"}, "`rule` must be a function or one of adaptive, .*, got 'sparsm'; did you mean sparsemm?"),
        ({"rule": "shuffled"}, "`rule` must be a function or one of"),
    ],
)
def test_a_mistake_is_named(given, match):
    with pytest.raises(ValueError, match=match):
        allocate(SCORES, **{"per_head": 64} | given)


def test_scores_of_another_kind_are_refused():
    with pytest.raises(ValueError, match="`scores` must be HeadScores or the path of a head file, got list"):
        allocate([[1, 2]], per_head=64)


def test_rules_go_by_name():
    assert find_rule("headkv") is rules.headkv
