"""Folding joins what is the same print and keeps apart what is not."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headscope.probing.fold import fold


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("ＡＢＣ１２３", "ABC123"),
        ("ﬁnal", "final"),
        ("ﬄuent", "ffluent"),
        ("Cafe\u0301", "Café"),
        ("no\u00a0break", "no break"),
        ("TOTAL", "total"),
        ("ｶﾞ", "ガ"),
        ("\u1100\u1161\u11a8", "각"),
        ("STRASSE", "straße"),
    ],
)
def test_the_same_print_folds_to_the_same_text(left: str, right: str) -> None:
    assert fold(left).text == fold(right).text


@pytest.mark.parametrize(
    ("left", "right"), [("①", "1"), ("x²", "x2"), ("½", "1/2"), ("a\u200bb", "ab"), ("“a”", '"a"')]
)
def test_what_looks_different_stays_different(left: str, right: str) -> None:
    assert fold(left).text != fold(right).text


def test_offsets_lead_back_where_lengths_change() -> None:
    folded = fold("ﬁnal Ａ")
    assert (len("ﬁnal"), len(folded.text[:5])) == (4, 5)
    assert folded.original(0, 5) == (0, 4)
    assert folded.original(0, 1) == folded.original(1, 2) == (0, 1)
    assert folded.original(6, 7) == (5, 6)


def test_a_composed_letter_stands_for_all_its_marks() -> None:
    folded = fold("cafe\u0301s")
    assert folded.text == "cafés"
    assert folded.original(3, 4) == (3, 5)
    assert folded.original(4, 5) == (5, 6)


@given(st.text())
def test_folding_twice_changes_nothing_and_offsets_cover_the_text_in_order(text: str) -> None:
    folded = fold(text)
    assert unicodedata.normalize("NFC", folded.text) == folded.text
    assert len(folded.starts) == len(folded.ends) == len(folded.text)
    assert list(folded.starts) == sorted(folded.starts)
    assert all(0 <= start < end <= len(text) for start, end in zip(folded.starts, folded.ends, strict=True))
