"""The figure: one page with the boxes of its words beside the head map, at a glance what headscope does."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw

from headscope.files import write_atomically
from headscope.page import Word
from headscope.report.head_map import render

if TYPE_CHECKING:
    from headscope.scores import HeadScores

BOX = (0, 114, 178)
MARGIN = 40  # pixels between the parts


def draw(image: np.ndarray, words: Sequence[Word], scores: HeadScores, path: str | Path) -> Path:
    """Write the figure as a PNG, whole or not at all. image: uint8 [height, width, 3], the page that has the words."""
    heads = Image.open(io.BytesIO(render(scores))).convert("RGB")
    page = _boxed(image, words, heads.height - 2 * MARGIN)
    figure = Image.new("RGB", (page.width + heads.width + 2 * MARGIN, heads.height), "white")
    figure.paste(page, (MARGIN, (heads.height - page.height) // 2))
    figure.paste(heads, (page.width + 2 * MARGIN, 0))
    png = io.BytesIO()
    figure.quantize(128).save(png, format="png", optimize=True)
    return write_atomically(path, png.getvalue())


def _boxed(image: np.ndarray, words: Sequence[Word], height: int) -> Image.Image:
    """Scale the page to a height and frame its words and its edge."""
    scale = height / image.shape[0]
    page = Image.fromarray(image).resize((round(image.shape[1] * scale), height), Image.Resampling.LANCZOS)
    pen = ImageDraw.Draw(page)
    for word in words:
        pen.polygon([(x * scale, y * scale) for x, y in word.quad], outline=BOX, width=3)
    pen.rectangle((0, 0, page.width - 1, page.height - 1), outline=(200, 200, 200))
    return page
