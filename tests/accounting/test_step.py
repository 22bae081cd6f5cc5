"""A step reads every weight once, each cache once, and of sparse weights what any of its tokens activates."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.accounting.precision import Precision
from headscope.accounting.shape import Layer, Shape
from headscope.accounting.step import kv_bytes, share_read, step_bytes
from tests.accounting import shapes as drawn


def expected_share(tokens: int, keep: float, use: float) -> float:
    """The chance that a channel is read, summed over all outcomes: which tokens use the matrix, which activate it."""
    chance = 0.0
    for used in itertools.product([True, False], repeat=tokens):
        weight = 1.0
        idle = 1.0
        for uses in used:
            weight *= use if uses else 1 - use
            idle *= 1 - keep if uses else 1
        chance += weight * (1 - idle)
    return chance


@settings(deadline=None)
@given(st.integers(1, 6), st.floats(0.01, 1), st.floats(0.01, 1))
def test_a_channel_is_read_when_any_token_uses_and_activates_it(tokens: int, keep: float, use: float) -> None:
    assert share_read(tokens, keep, use) == pytest.approx(expected_share(tokens, keep, use))


def test_of_two_of_eight_experts_a_batch_reads_the_expected_union() -> None:
    assert share_read(1, use=2 / 8) == 0.25
    assert share_read(2, use=2 / 8) == 0.4375  # 3.5 of 8
    assert share_read(64, use=2 / 8) == pytest.approx(1)


SMALL = Shape(
    layers=(Layer(10, 20, kv=8, other=3), Layer(10, 5, kv=8, other=4, expert=7, experts=4, active=1, window=6)),
    hidden=2,
    vocabulary=9,
    tied=False,
    final=2,
)


def test_a_small_step_is_counted_by_hand() -> None:
    step = step_bytes(SMALL, Precision(weight="fp8", kv="bf16", rest="float32"), 10, batch=2)
    assert step.attention == 20
    assert step.feed_forward == 25 + 7 * 4 * (1 - 0.75**2)
    assert step.head == 4 * 18 and step.embedding == 4 * 2 * 2 and step.other == 4 * (3 + 4 + 2)
    assert step.kv == 2 * 2 * (8 * 10 + 8 * 6)
    assert step.weights == pytest.approx(step.total - step.kv) and step.projections == 45 + 28 * (1 - 0.75**2)
    assert SMALL.weights == 10 + 20 + 3 + 10 + 5 + 4 + 28 + 2 + 2 * 18
    assert dataclasses.replace(SMALL, tied=True).weights == SMALL.weights - 18


def test_kept_tokens_cap_what_is_read_and_windows_do_too() -> None:
    bf16 = Precision()
    assert kv_bytes(SMALL, bf16, 10, kept=4) == 2 * (8 * 4 + 8 * 4)
    assert kv_bytes(SMALL, bf16, 10, kept=8) == 2 * (8 * 8 + 8 * 6)
    assert kv_bytes(SMALL, bf16, 3) == 2 * (8 * 3 + 8 * 3)


@settings(deadline=None)
@given(drawn.shapes(), drawn.precisions, drawn.contexts, drawn.batches, drawn.keeps)
def test_sparse_steps_read_less_in_their_own_place_only(shape, precision, context, batch, keep) -> None:  # type: ignore[no-untyped-def]
    dense = step_bytes(shape, precision, context, batch=batch)
    sparse = step_bytes(shape, precision, context, batch=batch, keep_act=keep.act, keep_kv=keep.kv)
    assert sparse.attention <= dense.attention and sparse.feed_forward <= dense.feed_forward
    assert sparse.kv == pytest.approx(keep.kv * dense.kv)
    assert (sparse.head, sparse.embedding, sparse.other) == (dense.head, dense.embedding, dense.other)
    assert step_bytes(shape, precision, context, batch=batch, new=1, keep_act=1, keep_kv=1) == dense


@settings(deadline=None)
@given(drawn.shapes(), drawn.precisions, drawn.contexts, st.integers(1, 32))
def test_a_batch_shares_weights_and_adds_caches(shape, precision, context, batch) -> None:  # type: ignore[no-untyped-def]
    one, many = (step_bytes(shape, precision, context, batch=size) for size in (1, batch))
    assert many.attention == one.attention and many.head == one.head and many.other == one.other
    assert one.feed_forward <= many.feed_forward * (1 + 1e-9)
    assert many.feed_forward <= batch * one.feed_forward * (1 + 1e-9)
    assert many.kv == pytest.approx(batch * one.kv) and many.embedding == batch * one.embedding
