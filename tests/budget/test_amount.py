"""Amounts: every way to say how much comes to whole tokens, rounded down."""

from __future__ import annotations

import pytest

from headscope.budget.amount import Amount

HEADS = 48


def test_tokens_a_head_and_tokens_in_all():
    assert Amount(per_head=64).tokens(HEADS, None) == 64 * HEADS
    assert Amount(total=1000).tokens(HEADS, None) == 1000


def test_a_ratio_is_the_part_that_is_kept_as_written_and_rounded_down():
    assert Amount(ratio_kept=0.29).tokens(1, 100) == 29  # in binary, .29 * 100 is 28.999999999999996
    assert Amount(ratio_kept=1).tokens(HEADS, 110) == 110 * HEADS
    assert Amount(ratio_kept=0.3).tokens(HEADS, 7) == 100  # of 336


def test_bytes_pay_for_keys_and_values_of_all_sequences():
    memory = Amount(bytes=2 * 32 * 2 * 8 * 100 + 127, batch=8, head_dim=32)
    assert memory.tokens(HEADS, 50) == 100
    assert Amount(bytes=2 * 32 * 4 * 100, head_dim=32, dtype="float32").tokens(HEADS, None) == 100


def test_gib_are_powers_of_two():
    assert Amount(gib=0.5, batch=2, head_dim=128).tokens(HEADS, None) == 2**29 // (2 * 2 * 128 * 2)


def test_generated_tokens_are_paid_for_first():
    memory = Amount(bytes=2 * 32 * 2 * (HEADS * 20 + 777), head_dim=32, context=120)
    assert memory.tokens(HEADS, 100) == 777
    assert memory.tokens(HEADS, None) == HEADS * 20 + 777


@pytest.mark.parametrize(
    ("given", "match"),
    [
        (
            {"per_head": 64, "total": 64},
            "one of `per_head`, .* says how much to keep, got `per_head`, `total`; give one",
        ),
        ({"per_head": 0}, "`per_head` must be a whole number above 0, got 0"),
        ({"per_head": -3}, "`per_head` must be a whole number above 0, got -3"),
        ({"per_head": 64.0}, "`per_head` must be a whole number above 0, got 64.0"),
        ({"per_head": True}, "`per_head` must be a whole number above 0, got True"),
        ({"total": "64"}, "`total` must be a whole number above 0, got '64'"),
        ({"bytes": 1e9}, "`bytes` must be a whole number above 0, got 1000000000.0"),
        ({"gib": 0}, "`gib` must be a number above 0, got 0"),
        ({"gib": float("nan")}, "`gib` must be a number above 0, got nan"),
        ({"ratio_kept": 40}, "`ratio_kept` must be at most 1: it is the part that is kept; got 40"),
        ({"gib": 1, "batch": 0}, "`batch` must be a whole number above 0, got 0"),
        ({"gib": 1, "head_dim": -1}, "`head_dim` must be a whole number above 0, got -1"),
        (
            {"per_head": 64, "context": 100},
            "`context` goes with `bytes` or `gib`; give the prompt's length as `prompt`",
        ),
    ],
)
def test_what_is_no_amount_is_refused(given, match):
    with pytest.raises(ValueError, match=match):
        Amount(**given)


@pytest.mark.parametrize(
    ("amount", "prompt", "match"),
    [
        (Amount(), 110, "one of `per_head`, .* must say how much to keep; give per_head=64"),
        (Amount(ratio_kept=0.5), None, "`prompt` must be the prompt's length in tokens for a `ratio_kept`; got None"),
        (Amount(gib=1), None, "`head_dim` must be the model's, .* got None"),
        (Amount(gib=1, head_dim=32, dtype="bf16"), None, "`dtype` must be the name of a torch dtype"),
        (Amount(gib=1, head_dim=32, context=99), 100, "`context` must hold the prompt of 100 tokens, got 99"),
        (Amount(bytes=9999, head_dim=32, context=110), 100, "`bytes` must pay for more than the 480 tokens that 48"),
        (
            Amount(gib=1e-9, head_dim=32),
            100,
            "`gib` must pay for more than the 0 tokens .* got 1 bytes for 1 sequences",
        ),
    ],
)
def test_what_cannot_be_counted_is_refused(amount, prompt, match):
    with pytest.raises(ValueError, match=match):
        amount.tokens(HEADS, prompt)
