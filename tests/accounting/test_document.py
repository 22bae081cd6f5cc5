"""The JSON object says what the account says, and is JSON."""

from __future__ import annotations

import json

import pytest

import headscope as hs
from headscope.accounting.document import to_json
from headscope.accounting.speculation import accepted_ratio


def test_the_object_holds_the_accounts_numbers() -> None:
    account = hs.account("llama-3.1-8b", context=131072)
    found = json.loads(json.dumps(to_json(account), allow_nan=False))
    assert found["format"] == "headscope.bytes/1" and found["model"] == "llama-3.1-8b"
    assert found["crossover_tokens"] == account.crossover_tokens
    assert found["crossover_feed_forward_tokens"] == account.crossover_feed_forward_tokens
    assert found["bounds"] == account.bounds
    assert found["bytes"]["total"] == round(account.step.total)
    parts = ("attention", "feed_forward", "head", "embedding", "other", "kv")
    assert sum(found["bytes"][part] for part in parts) == found["bytes"]["total"]
    assert found["layers"] == [
        {
            "count": 32,
            "projections": 436207616,
            "attention": 83886080,
            "feed_forward": 352321536,
            "kv_per_token": 4096,
            "window": None,
        }
    ]
    assert found["crossover_by_batch"]["1"] == found["crossover_tokens"]
    assert [point["context"] for point in found["curve"]] == [2048 * 2**step for step in range(7)]
    assert found["curve"][-1]["kv"] == pytest.approx(account.bounds["kv"])
    assert found["software"]["headscope"] == hs.__version__


def test_layers_of_different_kinds_are_told_apart() -> None:
    config = {"model_type": "gemma3_text", "sliding_window": 1024, "num_hidden_layers": 12}
    found = to_json(hs.account(config, context=131072))
    assert [(layer["count"], layer["window"]) for layer in found["layers"]] == [(10, 1024), (2, None)]
    mixed = to_json(hs.account("mixtral-8x7b"))["layers"][0]
    assert (mixed["experts"], mixed["active_experts"]) == (8, 2)
    assert mixed["feed_forward"] == 2 * 2 * 3 * 4096 * 14336


def test_speculation_at_the_acceptance_given_or_at_several() -> None:
    account = hs.account("qwen2-vl-7b", context=65536, batch=8, draft_tokens=1024)
    found = to_json(account, gamma=5, acceptance=0.9)["speculation"]
    (at,) = found["at_acceptance"]
    assert at["best_gamma"] == account.costs.best_gamma(0.9) and at["speed_up"] > 1.5
    assert at["accepted_ratio"] == accepted_ratio(0.9, 5)
    assert at["published_io"] == pytest.approx((5 * 1024 + 65536) / (at["accepted_ratio"] * 5))
    assert found["published_break_even"] == pytest.approx(1024 / 65536 + 1 / 5)
    assert found["break_even"] == pytest.approx(found["draft_cost"], abs=1e-4)
    assert len(to_json(account)["speculation"]["at_acceptance"]) == 4


def test_what_never_happens_is_null() -> None:
    found = to_json(hs.account("llama-3.1-8b", keep_kv=1), acceptance=0)
    assert found["crossover_tokens"] is None and found["bounds"]["kv"] == 1
    assert found["speculation"]["at_acceptance"][0]["published_io"] is None
    assert found["speculation"]["at_acceptance"][0]["best_gamma"] == 0
    json.dumps(found, allow_nan=False)
