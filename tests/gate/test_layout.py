"""Prompts have exactly the tokens asked for, and needles lie exactly where they should."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from headscope.gate.layout import Filler, encode, frame, lay_out, sentence_ends
from headscope.resources import find
from tests.gate.tiny import TEXT, tokenizer

depths = st.lists(st.floats(0, 1), min_size=1, max_size=4, unique=True)


@given(depths, st.integers(20, 300), st.integers(0, 500))
@settings(max_examples=60, deadline=None)
def test_a_needle_has_its_share_of_the_filler_before_it(at: list[float], context: int, start: int) -> None:
    """Filler counts 0, 1, ...; needles, head and tail are other numbers."""
    filler = Filler(range(50), [7, 20, 33, 50], start)
    needles = [(depth, [-1 - number] * 3) for number, depth in enumerate(at)]
    layout = lay_out([-100, -100], [-200], needles, filler, context)
    room = context - 3 - 3 * len(at)
    assert len(layout.ids) == context and layout.ids[:2] == (-100, -100) and layout.ids[-1] == -200
    for number, depth in enumerate(at):
        place = layout.positions[number]
        assert layout.ids[place : place + 3] == (-1 - number,) * 3
        assert sum(token >= 0 for token in layout.ids[:place]) == round(depth * room)


@given(st.lists(st.integers(0, 120), min_size=1, max_size=6), st.integers(0, 100))
@settings(max_examples=40, deadline=None)
def test_each_piece_of_filler_is_running_text_that_ends_a_sentence(sizes: list[int], start: int) -> None:
    filler, ends = Filler(range(50), [7, 20, 33, 50], start), {6, 19, 32, 49}
    for size in sizes:
        piece = filler.take(size)
        assert len(piece) == size and (not piece or piece[-1] in ends)
        assert all((after - before) % 50 == 1 for before, after in pairwise(piece))


def test_pieces_follow_each_other_in_the_text() -> None:
    filler = Filler(range(50), [10, 20, 30, 40, 50])
    assert filler.take(10) == list(range(10))
    assert filler.take(5) == list(range(15, 20))
    assert filler.take(40) == [*range(20, 50), *range(10)]


def test_sentences_end_at_their_marks() -> None:
    own = tokenizer()
    ids = encode(own, TEXT)
    ends = sentence_ends(own, ids)
    assert [own.decode(ids[:end]).rstrip()[-1] for end in ends] == [".", "!", "?", "."]


def test_a_context_that_leaves_no_filler_is_refused() -> None:
    with pytest.raises(
        ValueError, match="`context` must hold the question and what is hidden, 8 tokens, and more; got 8"
    ):
        lay_out([1, 2], [3], [(0.5, [4] * 5)], Filler(range(9), [9]), 8)


def test_a_chat_template_stands_around_the_words_and_is_found_by_its_ends() -> None:
    own = AutoTokenizer.from_pretrained(find("data", "reader"))
    own.chat_template = (find("data", "reader") / "chat_template.jinja").read_text()
    around = frame(own)
    whole = own.apply_chat_template([{"role": "user", "content": "Hi."}], add_generation_prompt=True, tokenize=False)
    assert own.decode(around.before) + "Hi." + own.decode(around.after) == whole


def test_a_tokenizer_without_a_template_asks_for_an_answer() -> None:
    own = tokenizer()
    assert own.decode(frame(own).after) == "\nAnswer:" and frame(own).before == ()


class Doubtful:
    """A template that drops what a person says."""

    chat_template = "-"

    def apply_chat_template(self, *args: Any, **kwargs: Any) -> str:
        return "Hello."


def test_a_template_that_changes_a_person_s_words_is_refused() -> None:
    with pytest.raises(ValueError, match="the chat template must hold a person's words as they are"):
        frame(tokenizer(), Doubtful())
