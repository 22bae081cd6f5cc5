"""Words right are counted by the alignment with the fewest edits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headscope.evaluate.words import WordsRight, words_right

texts = st.lists(st.sampled_from(["a", "b", "c"]), max_size=6).map(" ".join)


@pytest.mark.parametrize(
    ("reference", "answer", "right"),
    [
        ("one two three", "one two three", 3),
        ("one two three", "one\ntwo  three", 3),
        ("one two three", "two three", 2),
        ("one two three", "one too three four", 2),
        ("one two three", "", 0),
        ("One", "one", 0),
        ("a b", "b a", 1),
        ("x a b c", "a b c y", 3),
    ],
)
def test_known_pairs(reference: str, answer: str, right: int) -> None:
    assert words_right(reference, answer) == WordsRight(right, len(reference.split()))


@given(texts, texts)
def test_no_alignment_with_as_few_edits_has_more_matches(reference: str, answer: str) -> None:
    edits, matches = best(tuple(reference.split()), tuple(answer.split()))
    assert words_right(reference, answer).right == matches
    assert edits >= abs(len(reference.split()) - len(answer.split()))


def best(expected: tuple[str, ...], given_words: tuple[str, ...]) -> tuple[int, int]:
    """The same by plain recursion over all alignments: fewest edits, then most matches."""
    if not expected or not given_words:
        return len(expected) + len(given_words), 0
    edits, matches = best(expected[1:], given_words[1:])
    same = expected[0] == given_words[0]
    options = [(edits + (not same), matches + same)]
    for rest in ((expected[1:], given_words), (expected, given_words[1:])):
        edits, matches = best(*rest)
        options.append((edits + 1, matches))
    return min(options, key=lambda option: (option[0], -option[1]))
