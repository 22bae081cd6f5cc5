"""Training pages: random text drawn with PIL as a mask of its ink; `colour.py` gives it ink and paper later."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
from common import KEYS, Words
from PIL import Image, ImageDraw, ImageFont

SMALLEST_PX, LARGEST_PX = 15, 44


class Drawer:
    """Draws pages with the fonts (*.ttf) and the word list (`words`) of a folder; a seed gives the same pages."""

    def __init__(self, root: str | Path, seed: int) -> None:
        """Find the fonts and read the words."""
        self.rng = random.Random(seed)
        self.words = Words(Path(root, "words"), seed + 1)
        self.fonts = sorted(str(path) for path in Path(root).glob("*.ttf"))
        self.cache: dict[tuple[str, int], ImageFont.FreeTypeFont] = {}

    def font(self, size: int) -> ImageFont.FreeTypeFont:
        """Give a random font at a size in pixels."""
        name = self.rng.choice(self.fonts)
        if (name, size) not in self.cache:
            self.cache[name, size] = ImageFont.truetype(name, size)
        return self.cache[name, size]

    def page(self, height: int, width: int, keyed: bool = False) -> tuple[np.ndarray, list[str]]:
        """Draw a page, its lines `key: value` if `keyed`; give its ink, uint8 [height, width], and its lines.

        The font shrinks when nothing fits in the first line. A page may come out empty.
        """
        rng = self.rng
        highest = min(LARGEST_PX, height - 12)
        size = int(SMALLEST_PX * (highest / SMALLEST_PX) ** rng.random())
        font = self.font(size)
        mask = Image.new("L", (width, height), 0)
        left = rng.randint(2, max(3, width // 8))
        y = rng.randint(1, max(2, min(height // 5, height - int(1.3 * size) - 1)))
        step = size * rng.uniform(1.12, 1.7)
        most = rng.choice([1, 2, 3, 99, 99, 99, 99, 99])
        lines, keys = [], set() if keyed else None
        while y + size * 1.15 < height and len(lines) < most:
            x, line = self._line(font, left, width, keys)
            if line:
                ImageDraw.Draw(mask).text((x, y), line, fill=255, font=font)
                lines.append(line)
            elif not lines and size > SMALLEST_PX:
                size = max(SMALLEST_PX, int(size * 0.8))
                font, step = self.font(size), size * 1.3
                if keyed:
                    keys.clear()
                continue
            y += step
        return np.asarray(mask), lines

    def _line(self, font: ImageFont.FreeTypeFont, left: int, width: int, keys: set[str] | None) -> tuple[int, str]:
        """Give the left pixel of a line and its text, empty when no word fits; `keys` holds the keys used so far."""
        rng = self.rng
        wanted = rng.choice([1, 2, 3, 20, 20])
        x = left if rng.random() < 0.8 else rng.randint(2, max(3, width // 4))
        if keys is None:
            return x, self._fill("", wanted, font, width - 2 - x)
        key = rng.choice([key for key in KEYS if key not in keys] or ["x"])
        keys.add(key)
        line = self._fill(key + ":", rng.choice([1, 1, 2]), font, width - 2 - x)
        return x, "" if line.endswith(":") else line

    def _fill(self, line: str, wanted: int, font: ImageFont.FreeTypeFont, room_px: int) -> str:
        """Add up to `wanted` words to a line while they fit."""
        for _ in range(wanted):
            longer = f"{line} {self.words.word()}".lstrip()
            if font.getlength(longer) > room_px:
                break
            line = longer
        return line
