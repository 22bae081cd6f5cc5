"""Rules: the numbers that papers, published code and hand calculation give."""

from __future__ import annotations

import time

import pytest
import torch
from torch import Tensor

from headscope.budget import rules

PUBLISHED = [[0.4, 0.2], [0.0, 0.4]]  # query scores [.4 0 .1 .1 | 0 0 .05 .35], summed over two to a KV head


def doubles(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_sparsemm_agrees_with_the_published_formula_and_spends_the_token_that_rounding_lost():
    assert rules.sparsemm(doubles(PUBLISHED), 256, 32, None).tolist() == [[82, 58], [35, 81]]
    published = rules.sparsemm(doubles(PUBLISHED), 256, 32, None, paper_rounding=True)
    assert (published - 32).tolist() == [[49, 26], [3, 49]]


@pytest.mark.parametrize("paper_rounding", [False, True])
def test_both_roundings_agree_where_nothing_is_lost(paper_rounding):
    kept = rules.sparsemm(doubles([[1, 2, 4], [0, 0, 0]]), 6 * 64, 32, None, paper_rounding=paper_rounding)
    assert kept.tolist() == [[60, 85, 134], [35, 35, 35]]


def test_the_real_share_for_all_tells_the_paper_from_its_code():
    scores = doubles([[1, 1, 1, 1, 1, 1, 1, 3]])
    assert (rules.sparsemm(scores, 320, 32, None) - 32).tolist() == [[7, 7, 7, 7, 6, 6, 6, 18]]
    assert (rules.sparsemm(scores, 320, 32, None, paper_rounding=True) - 32).tolist() == [[6, 6, 6, 6, 6, 6, 6, 19]]


def test_when_every_scored_head_is_full_the_rest_is_shared_equally():
    assert (rules.sparsemm(doubles([[10, 0, 0, 0]]), 64 + 4 * 2, 2, 30) - 2).tolist() == [[28, 12, 12, 12]]


def test_published_code_drops_what_exceeds_the_prompt_and_takes_short_prompts():
    kept = rules.sparsemm(doubles([[10, 0, 0, 0]]), 64 + 4 * 2, 2, 30, paper_rounding=True)
    assert kept.tolist() == [[30, 3, 3, 3]]
    assert rules.sparsemm(doubles([[1, 0]]), 80, 32, 5, paper_rounding=True).tolist() == [[5, 5]]


@pytest.mark.parametrize("ratio", [0.0, 0.3, 1.0])
def test_the_ratio_is_what_all_heads_share_alike(ratio):
    kept = rules.sparsemm(doubles([[1, 0, 0, 3]]), 4 * 42, 2, None, ratio=ratio)
    pool = (1 - ratio) * 160
    assert (kept - 2).tolist() == [[ratio * 40 + pool / 4, ratio * 40, ratio * 40, ratio * 40 + 3 * pool / 4]]


def test_the_smallest_budget_is_the_window():
    assert rules.sparsemm(doubles([[1, 3]]), 2, 1, 2).tolist() == [[1, 1]]
    assert rules.sparsemm(doubles([[1, 3]]), 3, 1, 2).tolist() == [[1, 2]]


def test_a_query_head_counts_for_the_kv_head_that_it_reads():
    from headscope.budget import allocate
    from headscope.scores import HeadScores

    for values, expected in [([[1, 0, 0, 0]], [[93, 35]]), ([[0, 0, 1, 0]], [[35, 93]])]:
        assert allocate(HeadScores.from_values(values, 2), per_head=64).kept.tolist() == expected


def test_headkv_pools_one_part_in_beta_and_keeps_the_rest_alike():
    base, beta, share = 60, 1.2, doubles([[0.5, 0.3], [0.2, 0.0]])
    expected = (base - base / beta) + share * 4 * base / beta
    assert (rules.headkv(share, 4 * 92, 32, None) - 32).tolist() == expected.round().tolist()
    assert torch.equal(rules.headkv(share, 4 * 92, 32, None, beta=1), rules.sparsemm(share, 4 * 92, 32, None, ratio=0))


def test_random_is_sparsemm_on_scores_dealt_anew_and_a_seed_repeats_itself():
    scores = torch.arange(24, dtype=torch.float64).view(6, 4)
    kept = rules.random(scores, 24 * 64, 32, 200, seed=3)
    assert torch.equal(kept, rules.sparsemm(rules.shuffled(scores, 3), 24 * 64, 32, 200))
    assert torch.equal(kept, rules.random(scores, 24 * 64, 32, 200, seed=3))
    assert not torch.equal(kept, rules.random(scores, 24 * 64, 32, 200, seed=4))
    assert sorted(rules.shuffled(scores, 3).flatten().tolist()) == list(range(24))


def test_the_deal_is_the_same_on_every_machine():
    assert rules.shuffled(torch.arange(6, dtype=torch.float64).view(2, 3), 0).tolist() == [[3, 5, 2], [4, 1, 0]]


def test_uniform_gives_the_first_heads_what_does_not_divide():
    assert rules.uniform(torch.zeros(2, 2), 130, 4, None).tolist() == [[33, 33], [32, 32]]


def test_pyramid_falls_in_equal_steps_from_two_bases_less_the_last():
    scores, base = torch.zeros(5, 2), 200
    first, last = 2 * base - base / 20, base / 20
    steps = [round(first - layer * (first - last) / 4) for layer in range(5)]
    assert (rules.pyramid(scores, 10 * (base + 8), 8, None) - 8).tolist() == [[step] * 2 for step in steps]
    assert steps == [390, 295, 200, 105, 10]


def test_pyramid_turns_flatter_for_a_prompt_that_its_first_layer_exceeds():
    kept = rules.pyramid(torch.zeros(5, 2), 10 * 208, 8, 258)
    assert (kept - 8).tolist() == [[250] * 2, [225] * 2, [200] * 2, [175] * 2, [150] * 2]


def test_pyramid_of_one_layer_is_flat():
    assert rules.pyramid(torch.zeros(1, 3), 150, 8, None).tolist() == [[50, 50, 50]]


def test_full_keeps_all_and_needs_to_know_how_much_that_is():
    assert rules.full(torch.zeros(2, 3), 0, 32, 7).tolist() == [[7] * 3] * 2
    with pytest.raises(ValueError, match="`prompt` must be the prompt's length in tokens for `full`"):
        rules.full(torch.zeros(2, 3), 0, 32, None)


@pytest.mark.parametrize(
    ("rule", "setting", "match"),
    [
        (rules.sparsemm, {"ratio": 1.1}, "`ratio` must be a number from 0 to 1, got 1.1"),
        (rules.sparsemm, {"ratio": float("nan")}, "`ratio` must be a number from 0 to 1, got nan"),
        (rules.sparsemm, {"ratio": True}, "`ratio` must be a number from 0 to 1, got True"),
        (rules.random, {"ratio": -0.1}, "`ratio` must be a number from 0 to 1, got -0.1"),
        (rules.random, {"seed": None}, "`seed` must be a whole number of at least 0, got None"),
        (rules.random, {"seed": -1}, "`seed` must be a whole number of at least 0, got -1"),
        (rules.headkv, {"beta": 0.5}, "`beta` must be a number of at least 1, got 0.5"),
        (rules.pyramid, {"beta": float("inf")}, "`beta` must be a number of at least 1, got inf"),
    ],
)
def test_settings_that_mean_nothing_are_refused(rule, setting, match):
    with pytest.raises(ValueError, match=match):
        rule(torch.ones(2, 2), 4 * 64, 32, None, **setting)


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["sparsemm", "uniform", "pyramid", "headkv", "random", "full"])
def test_a_rule_plans_5120_heads_within_50_ms(rule):
    scores = torch.rand(80, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) ** 8

    def plan() -> float:
        start = time.perf_counter()
        getattr(rules, rule)(scores, 5120 * 256, 32, 700)
        return time.perf_counter() - start

    assert min(plan() for _ in range(9)) < 0.05
