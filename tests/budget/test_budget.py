"""Budgets: whole tokens within bounds, clipped with the loss told, counted in bytes."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from headscope.budget import Budget


def test_a_budget_tells_its_shape_and_its_sums():
    budget = Budget([[3, 4], [5, 8]], window=2, prompt=8)
    assert (budget.layers, budget.kv_heads, budget.total, budget.per_head, budget.lost) == (2, 2, 20, 5.0, 0)
    assert budget.per_layer.tolist() == [3.5, 6.5]
    assert budget.kept.dtype == torch.int64
    assert budget.model == {"layers": 2, "kv_heads": 2}


def test_a_budget_keeps_a_copy():
    kept = torch.tensor([[3, 4]], dtype=torch.int32)
    budget = Budget(kept, 2)
    kept[0, 0] = 9
    assert budget.kept.tolist() == [[3, 4]]
    assert Budget(np.array([[3, 4]]), 2).kept.tolist() == [[3, 4]]


def test_a_shorter_prompt_clips_each_head_and_the_loss_is_told():
    budget = Budget([[3, 4], [5, 8]], window=3, prompt=8)
    clipped = budget.clipped(4)
    assert clipped.kept.tolist() == [[3, 4], [4, 4]]
    assert (clipped.prompt, clipped.window, clipped.lost, clipped.asked) == (4, 3, 5, 20)
    assert clipped.clipped(2).kept.tolist() == [[2, 2], [2, 2]]
    assert clipped.clipped(2).lost == 12


def test_a_longer_prompt_changes_nothing():
    budget = Budget([[3, 8]], window=2, prompt=8)
    assert budget.clipped(100) is budget
    assert Budget([[3, 8]], window=2).clipped(100).kept.tolist() == [[3, 8]]


@pytest.mark.parametrize("prompt", [0, -1, 4.0, None, True])
def test_a_prompt_has_tokens(prompt):
    with pytest.raises(ValueError, match="`prompt` must be a whole number of tokens above 0"):
        Budget([[3, 4]], 2).clipped(prompt)


def test_bytes_are_those_of_keys_and_values():
    budget = Budget([[3, 4], [5, 8]], window=2, model={"head_dim": 32})
    assert budget.kv_bytes() == 20 * 2 * 32 * 2
    assert budget.kv_bytes("float32", head_dim=16, batch=3) == 3 * 20 * 2 * 16 * 4
    with pytest.raises(ValueError, match="`head_dim` must be the model's"):
        Budget([[3, 4]], 2).kv_bytes()


def test_a_budget_of_another_model_is_refused():
    budget = Budget([[3, 4]], 2, origin="other.json")
    assert budget.check(1, 2) is budget
    with pytest.raises(ValueError, match="`other.json`: expected 28 layers x 4 KV heads, found 1 layers x 2 KV heads"):
        budget.check(28, 4)


@pytest.mark.parametrize(
    ("kept", "more", "match"),
    [
        ([3, 4], {}, "`kept` must be [layer, kv], got shape [2]"),
        ([[]], {}, "`kept` must be [layer, kv], got shape [1, 0]"),
        ([[3, 4], [5]], {}, "`kept` must be whole numbers [layer, kv], each layer with as many"),
        ([["a", "b"]], {}, "`kept` must be whole numbers [layer, kv]"),
        ([[3.0, 4.0]], {}, "`kept` must be whole numbers of tokens, got float32"),
        ([[True]], {"window": 1}, "`kept` must be whole numbers of tokens, got bool"),
        (
            [[3, 1]],
            {},
            "`kept` must be at least 2 tokens (window 2, prompt of any length), got 1 at layer 0, KV head 1",
        ),
        (
            [[3], [9]],
            {"prompt": 8},
            "at least 2 and at most 8 tokens (window 2, prompt 8), got 9 at layer 1, KV head 0",
        ),
        ([[3]], {"window": 0}, "`window` must be a whole number of tokens above 0, got 0"),
        ([[3]], {"window": 2.0}, "`window` must be a whole number of tokens above 0, got 2.0"),
        ([[3]], {"prompt": 0}, "`prompt` must be a whole number of tokens above 0, got 0"),
    ],
)
def test_what_is_no_budget_is_refused(kept, more, match):
    with pytest.raises(ValueError, match=re.escape(match)):
        Budget(kept, **{"window": 2} | more)
