"""Labels: boxes in the layouts that data sets use, read into words."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image, UnidentifiedImageError

from headscope.page import Point, Word
from headscope.page.listing import near

LAYOUTS = {"xyxy": 4, "xywh": 4, "quad": 8}  # numbers in a box: two corners; a corner and a size; four corners
UNITS = {"pixel": None, "one": 1.0, "thousand": 1000.0}  # what the page's full width and height count as
ON_ITS_SIDE = (5, 6, 7, 8)  # EXIF orientations that swap width and height
ORIENTATION = 0x0112


def check_layout(layout: str, unit: str) -> None:
    """Refuse a layout or a unit that does not exist."""
    if layout not in LAYOUTS:
        raise ValueError(f"`layout` must be one of {', '.join(LAYOUTS)}; got {layout!r}{near(layout, LAYOUTS)}")
    if unit not in UNITS:
        raise ValueError(f"`unit` must be one of {', '.join(UNITS)}; got {unit!r}{near(unit, UNITS)}")


def word(text: Any, box: Any, layout: str = "xyxy", scale: Point = (1.0, 1.0)) -> Word:
    """Make a word from a label; `scale` brings its box to pixels.

    box: the numbers of `layout`, flat or as points: [x0, y0, x1, y1] or [[x0, y0], [x1, y1]].

    Raises ValueError when the text is no string, or the box has other than the layout's count of finite numbers.
    """
    if not isinstance(text, str):
        raise ValueError(f"`text` must be a string; got {text!r}")
    numbers = _flat(box)
    if len(numbers) != LAYOUTS[layout] or not all(_is_number(number) for number in numbers):
        name = "quad" if layout == "quad" else "box"
        raise ValueError(f"`{name}` of {text!r} must be {LAYOUTS[layout]} finite numbers ({layout}); got {box!r}")
    if layout == "xywh":
        numbers[2:] = numbers[0] + numbers[2], numbers[1] + numbers[3]
    first, second, *rest = zip((x * scale[0] for x in numbers[::2]), (y * scale[1] for y in numbers[1::2]), strict=True)
    return Word(text, (first, second, rest[0], rest[1])) if rest else Word.from_box(text, (*first, *second))


def to_pixels(source: Any, unit: str) -> Point | None:
    """Give the (x, y) factor from `unit` to pixels of the upright page; None when the picture cannot be read."""
    whole = UNITS[unit]
    if whole is None:
        return 1.0, 1.0
    size = _upright_size(source)
    return (size[0] / whole, size[1] / whole) if size else None


def _flat(box: Any) -> list:
    if not isinstance(box, Sequence) or isinstance(box, str):
        return []
    return [number for part in box for number in (part if isinstance(part, Sequence) else (part,))]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _upright_size(source: str | Path | bytes) -> tuple[int, int] | None:
    """Read (width, height) from the file's head; the pixels stay where they are."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # `decode` has a limit of its own
            with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source) as image:
                width, height = image.size
                return (height, width) if image.getexif().get(ORIENTATION) in ON_ITS_SIDE else (width, height)
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError, SyntaxError):
        return None
