"""Folding: the one function that both sides of a text comparison go through."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

NO_BREAK_SPACES = "\u00a0\u202f\u2007"
LIGATURES = range(0xFB00, 0xFB07)  # Latin ff, fi, fl, ffi, ffl, long st, st


@dataclass(frozen=True)
class Folded:
    """A folded text and where each of its characters came from.

    text: the folded text. starts, ends: for each folded character, the stretch of the original text it stands for.
    """

    text: str
    starts: tuple[int, ...]
    ends: tuple[int, ...]

    def original(self, start: int, stop: int) -> tuple[int, int]:
        """Map a half-open, non-empty stretch of the folded text back to the original text."""
        return self.starts[start], self.ends[stop - 1]


def fold(text: str) -> Folded:
    """Fold width, Latin ligatures, no-break spaces and case, then compose (NFC), keeping offsets.

    What NFKC would also fold stays as it is: superscripts, circled digits, fractions, zero-width spaces, curly quotes.
    A page that shows "x²" does not show "x2".
    """
    characters: list[tuple[str, int, int]] = []
    for start, stop in _clusters(text):
        loose = "".join(_fold_character(character) for character in text[start:stop])
        characters += [(character, start, stop) for character in unicodedata.normalize("NFC", loose)]
    return Folded(
        "".join(character for character, _, _ in characters),
        tuple(start for _, start, _ in characters),
        tuple(stop for _, _, stop in characters),
    )


def _fold_character(character: str) -> str:
    """Fold one character without looking at its neighbours."""
    if character in NO_BREAK_SPACES:
        return " "
    decomposition = unicodedata.decomposition(character)
    if decomposition.startswith(("<wide>", "<narrow>")) or ord(character) in LIGATURES:
        character = "".join(chr(int(code, 16)) for code in decomposition.split()[1:])
    return character.casefold()


def _clusters(text: str) -> Iterator[tuple[int, int]]:
    """Cut a text where composing cannot reach across: a character with the marks (or jamo) that join it."""
    start = 0
    for stop in range(1, len(text) + 1):
        if stop == len(text) or not _joins(text[start:stop], text[stop]):
            yield start, stop
            start = stop


def _joins(cluster: str, character: str) -> bool:
    """Tell whether composition merges or reorders a character with the cluster before it."""
    before = "".join(_fold_character(one) for one in cluster)
    after = _fold_character(character)
    apart = unicodedata.normalize("NFC", before) + unicodedata.normalize("NFC", after)
    return unicodedata.combining(after[0]) != 0 or unicodedata.normalize("NFC", before + after) != apart
