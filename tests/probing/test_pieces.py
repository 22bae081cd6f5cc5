"""Tokens get the characters that they stand for in the whole answer."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from headscope.probing.pieces import decode_answer
from headscope.resources import find


@pytest.fixture(scope="module")
def byte_level() -> Any:
    return AutoTokenizer.from_pretrained(find("data", "reader"))


@pytest.fixture(scope="module")
def metaspace() -> Any:
    """A tokenizer of the Llama kind: words begin with a mark, and decoding drops the first space."""
    pieces = ["<s>", "</s>", "▁TO", "TAL", "▁2", "00", "▁", "a"]
    tokenizer = Tokenizer(models.WordLevel({piece: at for at, piece in enumerate(pieces)}, unk_token="a"))
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")


@settings(deadline=None)
@given(st.text(max_size=12))
def test_spans_tile_the_whole_decoded_text(byte_level: Any, text: str) -> None:
    ids = byte_level.encode(text, add_special_tokens=False)
    answer = decode_answer(byte_level, ids)
    assert answer.text == byte_level.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    assert len(answer.spans) == len(answer.pieces) == len(ids)
    covered = 0
    for start, stop in answer.spans:
        assert start in {covered, *(begin for begin, _ in answer.spans)} and stop >= covered
        covered = stop
    assert covered == len(answer.text)


def test_tokens_that_make_one_character_together_share_it(byte_level: Any) -> None:
    ids = byte_level.encode("é票", add_special_tokens=False)
    answer = decode_answer(byte_level, ids)
    assert [answer.text[start:stop] for start, stop in answer.spans] == ["é", "é", "票", "票", "票"]
    assert set(answer.pieces) == {"\ufffd"}


def test_bytes_that_never_make_a_character_stay_a_replacement(byte_level: Any) -> None:
    ids = byte_level.encode("a票", add_special_tokens=False)[:-1]
    answer = decode_answer(byte_level, ids)
    assert answer.text.startswith("a") and set(answer.text[1:]) == {"\ufffd"}


def test_special_tokens_stand_for_nothing(byte_level: Any) -> None:
    ids = [*byte_level.encode("one", add_special_tokens=False), byte_level.eos_token_id]
    assert decode_answer(byte_level, ids).spans[-1] == (3, 3)


def test_marked_words_are_decoded_with_their_spaces(metaspace: Any) -> None:
    answer = decode_answer(metaspace, [2, 3, 4, 5, 1])
    assert answer.text == "TOTAL 200"
    assert [answer.text[start:stop] for start, stop in answer.spans] == ["TO", "TAL", " 2", "00", ""]
    assert decode_answer(metaspace, [2, 3, 4, 5], raw_pieces=True).pieces == ("▁TO", "TAL", "▁2", "00")
