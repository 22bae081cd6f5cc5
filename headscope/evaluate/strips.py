"""Strips: many small pictures, each with one line of a page, in one prompt that asks to read all of them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from headscope.page import Page
from headscope.page.image import decode

QUESTION = "Read all pictures."
CELL = 28  # pixels a side: one token of the bundled model
ROWS, COLUMNS = 2, 12  # of a strip, in cells
MARGIN_PX = 5  # of the page around a line
FEWEST, MOST = 8, 16  # pictures of a prompt


@dataclass(frozen=True, eq=False)
class Strips:
    """A prompt. images: uint8 [height, width, 3], all of one size. lines: what stands on each."""

    images: tuple[np.ndarray, ...]
    lines: tuple[str, ...]


def strips(pages: Sequence[Page], prompts: int, seed: int = 0) -> list[Strips]:
    """Make prompts of 8 to 16 strips in turn, of lines drawn from all pages; no line twice in a prompt.

    Raises ValueError where the pages have too few lines, with boxes of their words, that fit on a strip.
    """
    found = [cut for page in pages for cut in _cuts(page)]
    if len(found) < MOST:
        raise ValueError(f"`pages` must have {MOST} lines that fit on a strip, with boxes; got {len(found)}")
    made = []
    for number in range(prompts):
        count = FEWEST + number % (MOST - FEWEST + 1)
        images, lines = zip(*random.Random(f"{seed} {number}").sample(found, count), strict=True)
        made.append(Strips(images, lines))
    return made


def _cuts(page: Page) -> Iterator[tuple[np.ndarray, str]]:
    """Cut out each line that fits, and lay it on a sheet in the colour of the page beside it."""
    image, words = decode(page.source, name=page.name), list(page.words or ())
    for line in (page.text or "").split("\n"):
        own, words = words[: len(line.split())], words[len(line.split()) :]
        if [word.text for word in own] != line.split() or not own:
            return
        corners = np.array([corner for word in own for corner in word.quad])
        left, top = np.floor(corners.min(0)).astype(int) - MARGIN_PX
        right, bottom = np.ceil(corners.max(0)).astype(int) + MARGIN_PX
        cut = image[max(0, top) : bottom, max(0, left) : right]
        if cut.shape[0] <= ROWS * CELL and cut.shape[1] <= COLUMNS * CELL:
            yield _laid(cut), line


def _laid(cut: np.ndarray) -> np.ndarray:
    sheet = np.empty((ROWS * CELL, COLUMNS * CELL, 3), np.uint8)
    sheet[:] = cut[0, 0]
    top = (sheet.shape[0] - cut.shape[0]) // 2
    sheet[top : top + cut.shape[0], : cut.shape[1]] = cut
    return sheet
