"""Alignment: which words of the page the answer's tokens stand for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headscope.page import Word
from headscope.probing.fold import fold

Span = tuple[int, int]


@dataclass(frozen=True)
class Answer:
    """A decoded answer. text: the whole. pieces: each token decoded alone. spans: each token's characters in `text`."""

    text: str
    pieces: tuple[str, ...]
    spans: tuple[Span, ...]


def align(answer: Answer, words: Sequence[Word]) -> list[int | None]:
    """Give, for each token, the index of the one word that it reads, or None.

    Both texts are folded and cut at white space; the two sequences are aligned by their longest common subsequence. A
    word of the answer is credited only if every optimal alignment gives it the same box; each of its tokens then
    carries that box. A token that covers words of several boxes, or a word without one, carries none.
    """
    said = _split(answer.text)
    shown = [(unit, index) for index, word in enumerate(words) for unit, _ in _split(word.text)]
    boxes = certain_matches([unit for unit, _ in said], [unit for unit, _ in shown], [index for _, index in shown])
    return [_box_of(answer.text, span, said, boxes) for span in answer.spans]


def match_pieces(answer: Answer, words: Sequence[Word]) -> list[int | None]:
    """Give, for each token, the one word whose text has the token's raw piece in it: SparseMM's published rule.

    Case counts, nothing is folded, and a piece found in no box or in several carries none.
    """
    return [_only_holder(piece, words) for piece in answer.pieces]


def certain_matches(said: Sequence[str], shown: Sequence[str], boxes: Sequence[int]) -> list[int | None]:
    """Give, for each unit of `said`, the box that every longest common subsequence with `shown` gives it, or None.

    boxes: for each unit of `shown`, the box it stands in.
    """
    vocabulary = {unit: number for number, unit in enumerate(dict.fromkeys([*said, *shown]))}
    equal = np.equal.outer([vocabulary[unit] for unit in said], [vocabulary[unit] for unit in shown])
    before = common_lengths(equal)
    after = common_lengths(equal[::-1, ::-1])[::-1, ::-1]
    longest = before[-1, -1]
    in_some = equal & (before[:-1, :-1] + 1 + after[1:, 1:] == longest)
    left_out = (before[:-1] + after[1:] == longest).any(axis=1)
    return [_agreed(row, boxes) if not skipped else None for row, skipped in zip(in_some, left_out, strict=True)]


def common_lengths(equal: np.ndarray) -> np.ndarray:
    """Give the lengths of the longest common subsequences of all prefixes.

    equal: bool [m, n], which pairs of units are equal. Returns int64 [m + 1, n + 1].
    """
    lengths = np.zeros((equal.shape[0] + 1, equal.shape[1] + 1), dtype=np.int64)
    for row, pairs in enumerate(equal):
        # A row is the running maximum of what lies above it and of what each equal pair adds to its diagonal.
        best = np.maximum(lengths[row, 1:], np.where(pairs, lengths[row, :-1] + 1, 0))
        lengths[row + 1, 1:] = np.maximum.accumulate(best)
    return lengths


def _split(text: str) -> list[tuple[str, Span]]:
    """Cut a text at white space: folded units, each with its stretch of the original text."""
    folded = fold(text)
    return [(unit.group(), folded.original(*unit.span())) for unit in re.finditer(r"\S+", folded.text)]


def _agreed(pairs: np.ndarray, boxes: Sequence[int]) -> int | None:
    found = {boxes[index] for index in np.flatnonzero(pairs).tolist()}
    return found.pop() if len(found) == 1 else None


def _box_of(text: str, span: Span, said: list[tuple[str, Span]], boxes: list[int | None]) -> int | None:
    """Give the one box of all words that a token's characters touch."""
    if not is_readable(text[slice(*span)]):
        return None
    touched = {
        box for (_, (start, stop)), box in zip(said, boxes, strict=True) if max(start, span[0]) < min(stop, span[1])
    }
    return touched.pop() if len(touched) == 1 else None


def _only_holder(piece: str, words: Sequence[Word]) -> int | None:
    holders = [index for index, word in enumerate(words) if piece in word.text] if is_readable(piece) else []
    return holders[0] if len(holders) == 1 else None


def is_readable(piece: str) -> bool:
    """Tell whether a piece can stand for print: not empty, not white space, no replacement character."""
    return bool(piece.strip()) and "\ufffd" not in piece
