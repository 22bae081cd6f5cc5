"""Units of print come in reading order and are split into words."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headscope.page import Word
from headscope.page.lines import in_reading_order, split_words, upright, width

# A near-vertical line whose corners start at the bottom left, as an engine gave it.
STEEP = ((9.0, 1605.0), (90.0, 32.0), (144.0, 34.0), (63.0, 1607.0))
TILTED = ((56.0, 240.0), (365.0, 119.0), (379.0, 160.0), (70.0, 282.0))


def box(text: str, x0: float, y0: float, x1: float, y1: float) -> Word:
    return Word.from_box(text, (x0, y0, x1, y1))


def eight_orders(quad):
    for corners in (quad, quad[::-1]):
        for start in range(4):
            yield (*corners[start:], *corners[:start])


def texts(words) -> list[str]:
    return [word.text for word in words]


# reading order


@given(st.permutations(range(9)), st.lists(st.floats(-9, 9), min_size=9, max_size=9))
def test_lines_with_jitter_come_top_to_bottom_and_left_to_right(order, jitter):
    words = [
        box(str(i), i % 3 * 100, i // 3 * 50 + dy, i % 3 * 100 + 80, i // 3 * 50 + 30 + dy)
        for i, dy in enumerate(jitter)
    ]
    if all(abs(a - b) <= 15 for a, b in itertools.combinations(jitter, 2)):
        assert texts(in_reading_order(words[i] for i in order)) == [str(i) for i in range(9)]


def test_a_slanted_scan_keeps_its_lines():
    words = [
        box(f"{line}{column}", column * 100, y, column * 100 + 90, y + 30)
        for column in range(8)
        for line in range(4)
        for y in (line * 40 + column * 12,)
    ]
    assert texts(in_reading_order(words)) == [f"{line}{column}" for line in range(4) for column in range(8)]


def test_small_marks_belong_to_the_line_they_stand_in():
    words = [box("-", 100, 18, 110, 22), box("b", 120, 5, 150, 30), box("a", 0, 5, 90, 30), box("below", 0, 40, 90, 60)]
    assert texts(in_reading_order(words)) == ["a", "-", "b", "below"]


def test_flat_boxes_and_no_boxes_do_no_harm():
    assert in_reading_order([]) == []
    assert texts(in_reading_order([box("b", 50, 10, 60, 10), box("a", 0, 10, 20, 10)])) == ["a", "b"]


# words


def test_a_line_is_split_in_proportion_to_its_characters():
    one, two = split_words(Word.from_box("abc de", (0, 0, 56, 20), 0.5))  # 3 + 0.6 + 2 characters
    assert (one.text, two.text) == ("abc", "de")
    assert one.box == pytest.approx((0, 0, 30, 20))
    assert two.box == pytest.approx((36, 0, 56, 20))
    assert one.confidence == two.confidence == 0.5


def test_wide_characters_count_two_and_marks_nothing():
    assert width("票") == width("\uff21") == 2 * width("n")
    assert width("\u0301") == width("\u200b") == 0
    assert width("i") < width("n") < width("N") < width("W")
    wide, narrow = split_words(box("发票 nnnn", 0, 0, 86, 20))
    assert wide.box[2] == pytest.approx(40)
    assert narrow.box[0] == pytest.approx(46)


def test_the_words_of_a_real_line_lie_where_an_engine_with_word_boxes_saw_them():
    words = split_words(box("the quick brown fox", 6, 23, 390, 92))
    seen = [(13, 79), (93, 183), (198, 309), (323, 378)]
    for word, (x0, x1) in zip(words, seen, strict=True):
        assert abs(word.box[0] - x0) < 16
        assert abs(word.box[2] - x1) < 16


def test_one_word_keeps_its_quad_and_space_gives_none():
    unit = Word(" word\u3000", STEEP, None)
    assert split_words(unit) == [Word("word", STEEP, None)]
    assert split_words(Word(" \t", STEEP)) == []


@pytest.mark.parametrize(
    "quad", [STEEP, TILTED, Word.from_box("", (0, 0, 90, 20)).quad, Word.from_box("", (0, 0, 20, 90)).quad]
)
def test_all_eight_orders_of_a_quad_give_the_same_words(quad):
    results = [split_words(Word("two words", order)) for order in eight_orders(quad)]
    assert all(result == results[0] for result in results)
    assert len({Word("x", order).box for order in eight_orders(quad)}) == 1


def test_words_follow_a_tilted_line():
    one, two = split_words(Word("TILTED TEXT", TILTED))
    assert one.box[0] == 56
    assert one.box[1] > two.box[1]
    assert two.box[2] == 379


def test_vertical_print_runs_downwards():
    one, two = split_words(box("AAAA AAAA", 0, 0, 20, 200))
    assert one.box[3] < two.box[1]
    assert one.box[::2] == two.box[::2] == (0, 20)


def test_a_quad_without_area_is_split_without_a_crash():
    for flat in ((10, 10, 10, 10), (0, 5, 40, 5), (5, 0, 5, 40)):
        one, two = split_words(box("a b", *flat))
        assert (one.text, two.text) == ("a", "b")


@given(st.lists(st.tuples(st.floats(-1e4, 1e4), st.floats(-1e4, 1e4)), min_size=4, max_size=4), st.text(max_size=12))
def test_words_never_leave_their_line(corners, text):
    unit = Word(text, tuple(corners))
    x0, y0, x1, y1 = unit.box
    words = split_words(unit)
    assert texts(words) == text.split()
    for word in words:
        a, b, c, d = word.box
        assert x0 - 1e-6 <= a <= c <= x1 + 1e-6
        assert y0 - 1e-6 <= b <= d <= y1 + 1e-6
    assert sorted(upright(corners)) == sorted(corners)
