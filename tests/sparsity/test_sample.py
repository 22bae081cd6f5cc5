"""Samples: sequences that thresholds are calibrated on."""

from __future__ import annotations

import pytest
import torch

from headscope.sparsity import Sample, cut_text


class Letters:
    """A tokenizer of one token a letter."""

    def __call__(self, text: str, add_special_tokens: bool) -> dict[str, list[int]]:
        assert not add_special_tokens
        return {"input_ids": [ord(letter) for letter in text]}


def lengths(text: str, **how: int) -> list[int]:
    return [sample.tokens for sample in cut_text(Letters(), text, **how)]


def test_a_text_is_cut_into_pieces_and_a_short_rest_is_left_out() -> None:
    assert lengths("a" * 25, context=10) == [10, 10, 5]
    assert lengths("a" * 24, context=10) == [10, 10]
    assert lengths("a" * 3, context=10) == [3]
    assert lengths("a" * 99, context=10, tokens=20) == [10, 10]
    pieces = cut_text(Letters(), "abcdef", context=4)
    assert next(pieces).arguments["input_ids"].tolist() == [[97, 98, 99, 100]]


def test_a_text_without_tokens_and_wrong_lengths_are_named() -> None:
    with pytest.raises(ValueError, match="`text` must have at least one token, got none"):
        lengths("")
    with pytest.raises(ValueError, match="`context` must be a whole number of tokens above 0, got 0"):
        lengths("a", context=0)


def test_a_sample_needs_a_token_that_counts() -> None:
    ids = torch.zeros(1, 5, dtype=torch.int64)
    assert Sample({"input_ids": ids}, 4).tokens == 5
    for first in (5, -1):
        with pytest.raises(ValueError, match=f"`first` must be one of the sample's 5 tokens, got {first}"):
            Sample({"input_ids": ids}, first)


def test_the_hash_tells_sequences_and_first_tokens_apart() -> None:
    ids = torch.arange(5)[None]
    same = Sample({"input_ids": ids}).hash
    assert same == Sample({"input_ids": ids.clone()}).hash
    others = [Sample({"input_ids": ids + 1}), Sample({"input_ids": ids}, 1), Sample({"input_ids": ids[:, :4]})]
    assert same not in {other.hash for other in others}
