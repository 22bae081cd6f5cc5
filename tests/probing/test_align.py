"""Alignment credits a token only where every optimal reading agrees (CASES B25, B27, B28)."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headscope.page import Word
from headscope.probing.align import Answer, align, certain_matches, common_lengths, is_readable, match_pieces


def words(*texts: str) -> list[Word]:
    return [Word.from_box(text, (10 * at, 0, 10 * at + 8, 8)) for at, text in enumerate(texts)]


def answer(*pieces: str) -> Answer:
    """An answer whose tokens are these pieces, spelled out."""
    spans, text = [], ""
    for piece in pieces:
        spans.append((len(text), len(text) + len(piece)))
        text += piece
    return Answer(text, pieces, tuple(spans))


def test_each_piece_of_a_word_credits_its_box() -> None:
    assert align(answer("TO", "TAL", " 2", "00"), words("TOTAL", "200")) == [0, 0, 1, 1]


def test_a_word_that_could_be_two_boxes_credits_neither() -> None:
    assert align(answer("TO", "TAL", " 2", "00"), words("TOTAL", "100", "TOTAL", "200")) == [None, None, 3, 3]


def test_repeated_words_credit_their_own_boxes_when_order_settles_it() -> None:
    page = words("TOTAL", "100", "TOTAL", "200")
    assert align(answer("TOTAL", " 100", "\n", "TOTAL", " 200"), page) == [0, 1, None, 2, 3]


def test_a_line_box_is_one_box_however_its_words_align() -> None:
    assert align(answer("go", " go", " go"), words("go go go go")) == [0, 0, 0]


def test_part_of_a_word_matches_nothing() -> None:
    assert align(answer("a"), words("Total", "amount")) == [None]


def test_white_space_and_broken_characters_credit_nothing() -> None:
    assert align(answer("one", " ", "\n", "", "two"), words("one", "two")) == [0, None, None, None, 1]
    assert align(answer("one", " ", "\ufffd"), words("one", "\ufffd")) == [0, None, None]
    assert not is_readable("\u00a0")


def test_a_token_over_two_words_credits_none_and_one_with_a_space_its_word() -> None:
    assert align(answer("of the", " end"), words("of", "the", "end")) == [None, 2]


def test_both_sides_are_folded() -> None:
    page = words("ＡＢＣ１２３", "ﬁnal", "Cafe\u0301", "①", "x²")
    assert align(answer("abc123", " fi", "nal", " CAFÉ", " 1", " x2"), page) == [0, 1, 1, 2, None, None]


def test_a_word_broken_over_two_lines_is_never_credited_by_chance() -> None:
    assert align(answer("transfor", "mation"), words("transfor-", "mation")) == [None, None]
    assert align(answer("n-", "tridecanal"), words("n-tridecanal")) == [0, 0]
    assert align(answer("10-", "\n", "20"), words("10-", "20")) == [0, None, 1]


def test_no_words_on_either_side_is_no_match() -> None:
    assert align(answer("a"), []) == [None]
    assert align(answer(), words("a")) == []


@given(st.text("ab", max_size=6), st.text("ab", max_size=6))
def test_certain_matches_are_those_of_all_longest_common_subsequences(said: str, shown: str) -> None:
    alignments = longest_alignments(said, shown)
    expected = []
    for unit in range(len(said)):
        given_boxes = {pairs.get(unit) for pairs in alignments}
        expected.append(given_boxes.pop() if len(given_boxes) == 1 else None)
    assert certain_matches(said, shown, range(len(shown))) == expected


def longest_alignments(said: str, shown: str) -> list[dict[int, int]]:
    for size in range(min(len(said), len(shown)), -1, -1):
        found = [
            dict(zip(left, right, strict=True))
            for left in combinations(range(len(said)), size)
            for right in combinations(range(len(shown)), size)
            if all(said[i] == shown[j] for i, j in zip(left, right, strict=True))
        ]
        if found:
            return found
    return [{}]


def test_the_table_of_common_lengths_is_right_on_a_known_pair() -> None:
    import numpy as np

    equal = np.array([[left == right for right in "BDCABA"] for left in "ABCBDAB"])
    assert common_lengths(equal)[-1, -1] == 4


@pytest.mark.parametrize(
    ("piece", "expected"),
    [
        ("TOTAL", None),
        ("200", 1),
        ("total", None),
        ("OTAL 2", 1),
        (" 100", 0),
        ("", None),
        (" ", None),
        ("\ufffd", None),
    ],
)
def test_the_published_rule_takes_a_raw_piece_that_is_in_exactly_one_box(piece: str, expected: int | None) -> None:
    assert match_pieces(answer(piece), words("TOTAL 100", "TOTAL 200")) == [expected]


def test_the_published_rule_never_finds_a_piece_that_carries_its_space() -> None:
    assert match_pieces(answer("Ġamount", "▁amount", " amount"), words("amount")) == [None, None, None]
