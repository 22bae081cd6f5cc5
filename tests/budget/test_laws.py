"""One contract for every rule in conf/budget/: what a budget promises, whatever the scores, shapes and prompts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from torch import Tensor

from headscope.budget import Budget, allocate
from headscope.budget.rules import shuffled
from headscope.cli.bind import bind, target
from headscope.resources import find
from headscope.scores import HeadScores

RULES = sorted(path.stem for path in Path(find("conf", "budget")).glob("*.yaml"))
NEEDS_SCORES = ["headkv", "random", "sparsemm"]
ANY_FLOAT = st.floats(0, width=32, allow_nan=False, allow_infinity=False)
SCORES = st.one_of(ANY_FLOAT, st.sampled_from([0.0, 0.0, 0.125, 0.1, 0.2, 0.3, 1.0, 1.0, 40.0]))


def configured(rule: str) -> tuple[Any, dict[str, Any]]:
    """Read a rule's function and its settings from its config file."""
    from omegaconf import OmegaConf

    node: Any = OmegaConf.to_container(OmegaConf.load(find("conf", "budget", f"{rule}.yaml")))
    function = target(node.pop("_target_"), rule)
    return function, bind(function, node, f"{rule}.")


@st.composite
def heads(draw: st.DrawFn) -> HeadScores:
    """Scores of a model with one to three query heads a KV head; at least one is above 0."""
    layers, kv_heads, group = draw(st.integers(1, 6)), draw(st.integers(1, 5)), draw(st.integers(1, 3))
    values = draw(arrays.arrays(np.float32, (layers, kv_heads * group), elements=SCORES))
    if not values.any():
        values[draw(st.integers(0, layers - 1)), draw(st.integers(0, kv_heads * group - 1))] = 1.0
    return HeadScores.from_values(values, kv_heads)


@st.composite
def asked(draw: st.DrawFn) -> tuple[HeadScores, int, int, int | None]:
    """Scores, tokens in all, window and prompt; the total need not divide by the heads."""
    scores = draw(heads())
    count = scores.layers * scores.kv_heads
    window = draw(st.integers(1, 40))
    per_head = draw(st.integers(window, draw(st.sampled_from([window + 1, window + 30, 400]))))
    more = draw(st.integers(0, count - 1)) if draw(st.booleans()) else 0
    return scores, count * per_head + more, window, draw(st.one_of(st.none(), st.integers(1, 300)))


def made_up(scores: HeadScores, prompt: int) -> Tensor:
    """Importances with many ties, one head well above the others."""
    source = torch.Generator().manual_seed(prompt)
    drawn = torch.randint(0, 6, (scores.layers, scores.kv_heads, prompt), generator=source).float()
    return drawn * torch.linspace(1, 2, scores.kv_heads)[:, None]


def planned(rule: str, scores: HeadScores, total: int, window: int, prompt: int | None, **more: Any) -> Budget:
    function, chosen = configured(rule)
    if rule == "adaptive":
        more["importances"] = made_up(scores, prompt or 50)
    return allocate(scores, total=total, window=window, prompt=prompt, rule=function, **chosen, **more)


def compared(rule: str, scores: HeadScores) -> Tensor:
    """The KV-head scores that a rule goes by, in fp64."""
    kv = scores.values.double().view(scores.layers, scores.kv_heads, -1).sum(-1)
    return shuffled(kv, seed=0) if rule == "random" else kv


def test_every_rule_has_a_config_and_every_config_a_rule():
    from headscope.budget import rules

    assert sorted(rules.__all__) == RULES
    for rule in RULES:
        assert configured(rule)[0] is getattr(rules, rule)


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=150, deadline=None)
@given(asked())
def test_a_budget_is_whole_numbers_within_the_window_and_the_prompt_and_spends_all(rule, asked):
    scores, total, window, prompt = asked
    if rule in ("adaptive", "full"):
        prompt = prompt or 50
    budget = planned(rule, scores, total, window, prompt)
    count = budget.kept.numel()
    assert budget.kept.dtype == torch.int64 and budget.kept.shape == (scores.layers, scores.kv_heads)
    assert int(budget.kept.min()) >= (window if prompt is None else min(window, prompt))
    if prompt is not None:
        assert int(budget.kept.max()) <= prompt
    spent = total if prompt is None else min(total, count * prompt)
    assert budget.total == (count * prompt if rule == "full" else spent)
    assert budget.lost == (0 if rule == "full" else total - spent)
    assert 0 <= budget.moved <= budget.total


@pytest.mark.parametrize("rule", NEEDS_SCORES)
@settings(max_examples=300, deadline=None)
@given(asked())
def test_a_higher_score_never_gets_less_and_equal_scores_differ_by_at_most_one(rule, asked):
    scores, total, window, prompt = asked
    kept = planned(rule, scores, total, window, prompt).kept.flatten()
    kv = compared(rule, scores).flatten()
    higher = kv[:, None] > kv[None] * (1 + 2e-6)  # closer ones count as equal
    less = kept[:, None] < kept[None]
    assert not (higher & less).any()
    equal = (kv[:, None] - kv[None]).abs() <= 1e-12 * kv[:, None]
    assert not (equal & ((kept[:, None] - kept[None]).abs() > 1)).any()


@pytest.mark.parametrize("rule", ["uniform", "pyramid"])
@settings(max_examples=100, deadline=None)
@given(asked())
def test_heads_of_a_layer_are_alike_where_scores_do_not_count(rule, asked):
    kept = planned(rule, *asked).kept
    assert int((kept.amax(-1) - kept.amin(-1)).max()) <= 1


@settings(max_examples=100, deadline=None)
@given(asked())
def test_adaptive_is_exact_in_each_layer(asked):
    scores, total, window, prompt = asked
    kept = planned("adaptive", scores, total, window, prompt or 50).kept.sum(-1)
    spent = min(total, scores.layers * scores.kv_heads * (prompt or 50))
    assert kept.tolist() == [spent // scores.layers + (layer < spent % scores.layers) for layer in range(scores.layers)]


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule not in ("adaptive", "full")])
@settings(max_examples=60, deadline=None)
@given(asked(), st.integers(1, 400))
def test_a_cap_that_no_head_meets_changes_nothing(rule, asked, beyond):
    scores, total, window, _ = asked
    free = planned(rule, scores, total, window, None)
    capped = planned(rule, scores, total, window, int(free.kept.max()) + beyond)
    assert torch.equal(free.kept, capped.kept)
    assert capped.moved == 0


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "full"])
def test_a_window_above_the_average_is_refused_also_for_a_short_prompt(rule):
    scores = HeadScores.from_values(np.ones((2, 4)), 2)
    for prompt in (5, 500):
        with pytest.raises(
            ValueError, match="`window` must be at most `per_head`.* got window 33 and 32 tokens a head"
        ):
            planned(rule, scores, 4 * 32, 33, prompt)


@pytest.mark.parametrize("rule", NEEDS_SCORES)
def test_scores_of_zero_are_refused_by_the_rules_that_use_them(rule):
    with pytest.raises(ValueError, match="`scores` must be above 0 for at least one head, got zeros only"):
        allocate(HeadScores.from_values(np.zeros((2, 4)), 2), per_head=64, rule=rule)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("prompt", [1, 2, 31, 32, 33])
def test_a_prompt_no_longer_than_the_window_is_kept_whole(rule, prompt):
    budget = planned(rule, HeadScores.from_values([[1, 0], [3, 0]]), 4 * 40, 32, prompt)
    if prompt <= 32 or rule == "full":
        assert (budget.kept == prompt).all()
    assert (budget.window, budget.prompt) == (32, prompt)
