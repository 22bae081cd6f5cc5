"""Words right: how much of a page's text an answer gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headscope.page import Page


@dataclass(frozen=True)
class WordsRight:
    """right: words of the page that the answer has in place. total: words of the page."""

    right: int
    total: int


def words_right(reference: str, answer: str) -> WordsRight:
    """Count the words right by edit-distance alignment: of all alignments with the fewest edits, the most matches.

    Words are cut at white space and must be equal to the letter, case included.
    """
    expected, given = reference.split(), answer.split()
    return WordsRight(_matches(expected, given), len(expected))


def _matches(expected: Sequence[str], given: Sequence[str]) -> int:
    """Count the matches, by the usual table of edit distances: each entry is (edits, -matches), and the least wins."""
    row = [(edits, 0) for edits in range(len(given) + 1)]
    for count, word in enumerate(expected, start=1):
        diagonal, row[0] = row[0], (count, 0)
        for column, other in enumerate(given, start=1):
            change = (diagonal[0], diagonal[1] - 1) if word == other else (diagonal[0] + 1, diagonal[1])
            skip = min(row[column], row[column - 1])
            diagonal, row[column] = row[column], min(change, (skip[0] + 1, skip[1]))
    return -row[-1][1]


def page_text(page: Page) -> str:
    """Give what stands on a page. Raises ValueError for a page that carries neither text nor words."""
    if page.text is None and page.words is None:
        raise ValueError(
            f"`pages` must carry their text to be evaluated, {page.name} has none; use JSONL pages or bundled ones"
        )
    return page.text if page.text is not None else " ".join(word.text for word in page.words or ())
