"""A page: one picture with text on it, and the words that are known to stand there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image

    Source = str | Path | bytes | Image.Image | np.ndarray

Point = tuple[float, float]
Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Word:
    """One unit of text and where it stands.

    text: as read or labelled, never folded. quad: four corners in any order, in pixels of the decoded page
    (`page.image.decode`). confidence: 0..1, or None where the engine gives none.
    """

    text: str
    quad: tuple[Point, Point, Point, Point]
    confidence: float | None = None

    @classmethod
    def from_box(cls, text: str, box: Box, confidence: float | None = None) -> Word:
        """Make a word from an axis-aligned box (x0, y0, x1, y1) in pixels."""
        x0, y0, x1, y1 = (float(side) for side in box)
        return cls(text, ((x0, y0), (x1, y0), (x1, y1), (x0, y1)), confidence)

    @property
    def box(self) -> Box:
        """The axis-aligned box (x0, y0, x1, y1) of the quad: the same for all eight orders of its corners."""
        xs, ys = zip(*self.quad, strict=True)
        return min(xs), min(ys), max(xs), max(ys)


@dataclass(frozen=True)
class Page:
    """One picture to read.

    name: how a person knows it (relative to its source, no absolute path). source: whatever `decode` takes.
    words: boxes that come with the data, or None. text: the page's own text in reading order, or None.
    """

    name: str
    source: Source
    words: tuple[Word, ...] | None = None
    text: str | None = None
