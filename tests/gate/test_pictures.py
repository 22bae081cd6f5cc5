"""Pictures: the one at a depth is asked for by its number, and a window answers only those that lie in it."""

from __future__ import annotations

import re
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import headscope as hs
from headscope.gate.pictures import KEYS, _ask, draw, key_values, pages_to_score, read_pictures, shows
from headscope.gate.run import measure
from headscope.gate.suite import Suite, build
from headscope.gate.verdict import judge
from headscope.page import Page
from headscope.select import sinks_and_recent
from tests.families.tiny import TINY


@pytest.fixture(scope="module")
def six(reader: Any) -> Suite:
    return build(reader[1], tests=["pictures"], depths=[0.25, 0.75], each=1, pictures=[6])


@pytest.mark.parametrize(("count", "asked"), [(6, [1, 2, 3, 5, 6]), (40, [3, 11, 21, 30, 38])])
def test_the_picture_at_a_depth_is_asked_for_by_its_number(reader: Any, count: int, asked: list[int]) -> None:
    placements = list(read_pictures(reader[1], count=count, each=1))
    questions = [placement.inputs.args[-1] for placement in placements]  # type: ignore[attr-defined]
    assert [int(re.findall(r"\d+", question)[0]) for question in questions] == asked
    for placement, number in zip(placements, asked, strict=True):
        pages = placement.inputs.args[1]  # type: ignore[attr-defined]
        assert " ".join(pages[number - 1]) == placement.expected and len(placement.distractors) == count - 1


def test_the_line_at_a_depth_is_asked_for_by_its_key(reader: Any) -> None:
    for placement, row in zip(key_values(reader[1], each=1), [1, 3, 6, 9, 11], strict=True):
        _, (lines,), question = placement.inputs.args  # type: ignore[attr-defined]
        key, value = lines[row].split(": ")
        assert question == f"What is the {key}?" and value == placement.expected and key in KEYS
        assert len(lines) == len(KEYS) and len(placement.distractors) == len(KEYS) - 1


def test_a_drawn_page_is_whole_cells_with_ink_in_every_line() -> None:
    page = draw(["first line", "second line"])
    assert page.shape == (84, 280, 3) and page.dtype == np.uint8
    assert page[:38].min() == 0 and page[38:].min() == 0


def test_a_picture_is_found_where_three_of_its_four_words_are_in_place() -> None:
    answers = ("ab cd\nef gh", "ab xx ef gh", "ab cdef gh", "gh ef cd ab", "")
    assert [shows(answer, "ab cd ef gh") for answer in answers] == [True, True, False, False, False]


def test_a_window_answers_the_pictures_inside_it_and_no_others(reader: Any, six: Suite) -> None:
    """And a full cache answers what the dense model answers: all of them."""
    model, _ = reader
    scores = hs.HeadScores.from_values([[1.0] * 12] * 12, kv_heads=4)
    budget = partial(hs.compress, scores=scores, window=32, select=sinks_and_recent)
    plain = measure(model, six)
    assert judge(six, plain, measure(model, six, partial(budget, rule="full"))).admitted
    verdict = judge(six, plain, measure(model, six, partial(budget, rule="uniform", ratio_kept=0.5)))
    assert not verdict.admitted and [placement.depth for placement in verdict.tests[0].lost] == [0.25]
    assert verdict.tests[0].right == (2, 1)


def test_the_model_answers_what_a_key_s_value_is(reader: Any) -> None:
    suite = build(reader[1], tests=["keys"], depths=[0.5], each=2)
    answers = measure(reader[0], suite).answers
    assert all(answer.right for answer in answers.values()), answers


def test_pictures_are_numbered_where_a_template_does_not_number_them(reader: Any) -> None:
    _, processor = TINY["qwen2_vl"]()
    processor.chat_template = (
        "{% for m in messages %}{% for c in m.content %}{% if c.type == 'image' %}"
        "<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ c.text }}{% endif %}{% endfor %}{% endfor %}"
    )
    for own in (processor, reader[1]):
        ids = _ask(own, [["one"], ["two"]], "Read picture 2.")["input_ids"][0]
        text = re.sub(r"(<\|image_pad\|>)+", "*", own.tokenizer.decode(ids))
        told = "Picture 1: <|vision_start|>*<|vision_end|>Picture 2: <|vision_start|>*<|vision_end|>Read picture 2."
        assert told in text


def test_pages_without_their_text_cannot_be_scored(reader: Any) -> None:
    blank = np.zeros((28, 28, 3), dtype=np.uint8)
    with pytest.raises(ValueError, match="`pages` must carry their text"):
        pages_to_score(reader[1], [Page("a", blank)], "Read the text.")
    with pytest.raises(ValueError, match="`pages` must have words to be scored, the 1 given have none"):
        pages_to_score(reader[1], [Page("a", blank, text="")], "Read the text.")
    with pytest.raises(ValueError, match="`pictures` must be numbers of pictures, each at least 2, got 1"):
        list(read_pictures(SimpleNamespace(), count=1))
