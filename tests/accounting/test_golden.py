"""The published numbers come back for the published models."""

from __future__ import annotations

import pytest

import headscope as hs
from headscope.accounting.speculation import best_gamma

K = 1024


def in_k(tokens: float | None) -> str:
    assert tokens is not None
    return f"{tokens / K:.1f}K"


@pytest.mark.parametrize(
    ("model", "everything", "feed_forward"),
    [
        ("qwen3-8b", "65.7K", "51.4K"),
        ("llama-3.1-8b", "74.3K", "60.0K"),
        ("mistral-7b", "74.3K", "60.0K"),
        ("llama-3.1-70b", "291.4K", "240.0K"),
    ],
)
def test_the_crossovers_are_those_of_the_papers_first_table(model: str, everything: str, feed_forward: str) -> None:
    found = hs.account(model, keep_act=0.5, keep_kv=0.3)
    assert in_k(found.crossover_tokens) == everything
    assert in_k(found.crossover_feed_forward_tokens) == feed_forward


@pytest.mark.parametrize(
    ("model", "keep_act", "keep_kv", "tokens"),
    [
        ("llama-3.1-8b", 0.7, 0.3, "44.6K"),
        ("llama-3.1-8b", 0.5, 0.3, "74.3K"),
        ("llama-3.1-8b", 0.5, 0.5, "104.0K"),
        ("llama-3.2-3b", 0.5, 0.3, "34.3K"),
    ],
)
def test_the_crossovers_are_those_of_the_papers_second_table(
    model: str, keep_act: float, keep_kv: float, tokens: str
) -> None:
    assert in_k(hs.account(model, keep_act=keep_act, keep_kv=keep_kv).crossover_tokens) == tokens


def test_a_layer_reads_what_the_paper_says() -> None:
    found = hs.account("llama-3.1-8b", context=512)
    (layer,) = found.shape.kinds
    assert round((layer.attention + layer.feed_forward) * found.precision.weight_bytes / 1e6) == 436
    assert layer.kv * found.precision.kv_bytes == 4096
    assert round(found.step.kv / 32 / 1e6) == 2
    assert round(found.at(context=32 * K).step.kv / 32 / 1e6) == 134


def test_the_cache_at_30_percent_makes_a_step_of_128k_at_most_1_60_times_as_fast() -> None:
    assert f"{hs.account('llama-3.1-8b', context=128 * K).bounds['kv']:.2f}" == "1.60"


@pytest.mark.parametrize(
    ("batch", "context", "cost", "gamma"),
    [(1, 32 * K, "0.89", 1), (8, 32 * K, "0.52", 3), (8, 64 * K, "0.35", 4), (8, 128 * K, "0.21", 6)],
)
def test_drafts_of_1k_tokens_with_15_gb_of_weights(batch: int, context: int, cost: str, gamma: int) -> None:
    """Qwen2-VL-7B with its embedding table counted as read: 15.2 GB, 57 KB of KV a token."""
    account = hs.account("qwen2-vl-7b", context=context, batch=batch, draft_tokens=K)
    weights, kv = 15.2e9, 57344
    assert f"{account.memory.weights / 1e9:.1f}" == "15.2" and account.step.kv == batch * context * kv
    draft = (weights + batch * K * kv) / (weights + batch * context * kv)
    assert f"{draft:.2f}" == cost and best_gamma(0.9, draft) == gamma
    table = 2 * 3584 * 152064
    costs = account.costs  # which leaves out the table: a step reads one row of it for each sequence
    assert (costs.draft + table) / (costs.dense + table) == pytest.approx(draft, abs=0.002)
    assert costs.draft_cost < draft
