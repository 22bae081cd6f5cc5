"""Lines of print: what an OCR engine found, put in reading order and split into words."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from statistics import median

from headscope.page import Point, Word

# Character widths in units of an average lower-case letter. Against the true widths of Liberation and DejaVu (sans and
# serif) these put the ends of words 0.15 to 0.22 characters off, equal widths 0.5 to 0.65; monospaced print: 0.48.
NARROW, CAPITAL, BROAD, WIDE = 0.6, 1.2, 1.4, 2.0
NARROW_CHARACTERS = frozenset("iIjltfr.,:;'!|()[]{}/\\`-")
UPRIGHT_RATIO = 1.5  # from here on a tall unit is taken for a vertical line of print; the bound RapidOCR uses


def in_reading_order(units: Iterable[Word]) -> list[Word]:
    """Order units by lines from top to bottom, and from left to right inside a line.

    A unit joins the line whose last unit it overlaps most, by at least half the lower one's height: this stands slight
    jitter and slanted scans.
    """
    lines: list[list[Word]] = []
    for unit in sorted(units, key=lambda word: (word.box[0], word.box[1])):
        line = max(lines, key=lambda line: _overlap(line[-1], unit), default=None)
        if line is not None and _overlap(line[-1], unit) >= 0.5:
            line.append(unit)
        else:
            lines.append([unit])
    lines.sort(key=lambda line: median(_middle(word) for word in line))
    return [unit for line in lines for unit in line]


def split_words(unit: Word) -> list[Word]:
    """Split a unit at white space into words.

    Each gets its part of the quad in proportion to the width of its characters, white space included. A unit of one
    word keeps its quad as it is; white space alone gives no word.
    """
    text = unit.text.strip()
    spans = [match.span() for match in re.finditer(r"\S+", text)]
    if len(spans) < 2:
        return [Word(text, unit.quad, unit.confidence)] if spans else []
    ends = [0.0]
    for character in text:
        ends.append(ends[-1] + width(character))
    quad = upright(unit.quad)
    return [Word(text[a:b], _part(quad, ends[a] / ends[-1], ends[b] / ends[-1]), unit.confidence) for a, b in spans]


def width(character: str) -> float:
    """Estimate a character's room on a line: 1 for an average letter, 2 for wide East-Asian ones, 0 for marks."""
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0.0
    if unicodedata.east_asian_width(character) in "WF":
        return WIDE
    if character in NARROW_CHARACTERS or character.isspace():
        return NARROW
    if character in "mwMW@%":
        return BROAD
    return CAPITAL if character.isupper() else 1.0


def upright(quad: Sequence[Point]) -> tuple[Point, Point, Point, Point]:
    """Order a quad's corners as its print runs: (start, end) of the upper side, then (end, start) of the lower side.

    The same for all eight orders of the corners. Print runs along the longer side if that is clearly longer, else along
    the more level one; from left to right, or downwards when steeper than 45 degrees.
    """
    cx, cy = sum(x for x, _ in quad) / 4, sum(y for _, y in quad) / 4
    around = sorted(quad, key=lambda point: (math.atan2(point[1] - cy, point[0] - cx), point))
    first, second = _side(around, 0), _side(around, 1)
    length, other = math.hypot(*first), math.hypot(*second)
    if max(length, other) >= UPRIGHT_RATIO * min(length, other):
        start = 0 if length >= other else 1
    else:
        start = 0 if abs(first[0]) * other >= abs(second[0]) * length else 1
    dx, dy = (first, second)[start]
    forward = dx > 0 if abs(dx) >= abs(dy) else dy > 0
    start += 0 if forward else 2
    a, b, c, d = (around[(start + step) % 4] for step in range(4))
    return a, b, c, d


def _side(around: Sequence[Point], start: int) -> Point:
    """Give the mean direction of one pair of opposite sides."""
    (ax, ay), (bx, by), (cx, cy), (dx, dy) = (around[(start + step) % 4] for step in range(4))
    return (bx - ax + cx - dx) / 2, (by - ay + cy - dy) / 2


def _part(quad: Sequence[Point], low: float, high: float) -> tuple[Point, Point, Point, Point]:
    """Cut out the share low..high of an upright quad's length."""
    a, b, c, d = quad
    return _between(a, b, low), _between(a, b, high), _between(d, c, high), _between(d, c, low)


def _between(start: Point, end: Point, share: float) -> Point:
    return start[0] + (end[0] - start[0]) * share, start[1] + (end[1] - start[1]) * share


def _overlap(left: Word, right: Word) -> float:
    """Give the share of the lower unit's height at which two units stand side by side."""
    (_, a0, _, a1), (_, b0, _, b1) = left.box, right.box
    lower = min(a1 - a0, b1 - b0)
    if lower <= 0:
        return float(max(a0, b0) <= min(a1, b1))
    return (min(a1, b1) - max(a0, b0)) / lower


def _middle(word: Word) -> float:
    return (word.box[1] + word.box[3]) / 2
