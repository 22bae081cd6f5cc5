"""An OCR engine: what every engine does around the reading itself."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np

from headscope.page import Page, Word
from headscope.page.lines import in_reading_order, split_words

log = logging.getLogger(__name__)

GRANULARITIES = ("word", "line")


class EngineFailure(RuntimeError):
    """An engine broke down on one picture: such a page counts as one without words, and is not kept in the cache."""


class Engine:
    """Reads the words of a page: ``engine(page, image)`` gives them in reading order, in pixels of `image`.

    name and version say what read the page. options: what else changes the result, JSON-able. cacheable: whether the
    picture alone decides the result. ordered: whether `units` come in reading order already. A subclass gives `units`.
    """

    name: ClassVar[str]
    cacheable: ClassVar[bool] = True
    ordered: ClassVar[bool] = False
    granularity: str

    @property
    def version(self) -> str:
        raise NotImplementedError

    @property
    def options(self) -> dict[str, Any]:
        return {"granularity": self.granularity}

    def __call__(self, page: Page, image: np.ndarray) -> list[Word]:
        """Read a page; an engine that breaks down on it gives no words and one warning."""
        try:
            return self.read(page, image)
        except EngineFailure as failure:
            log.warning("%s", failure)
            return []

    def read(self, page: Page, image: np.ndarray) -> list[Word]:
        """Read a page, uint8 [height, width, 3]. Raises EngineFailure when the engine breaks down on it."""
        units = [unit for unit in self.units(page, image) if unit.text.strip()]
        units = units if self.ordered else in_reading_order(units)
        return [word for unit in units for word in split_words(unit)] if self.granularity == "word" else units

    def units(self, page: Page, image: np.ndarray) -> list[Word]:
        """Give what the engine itself calls one piece of text, in any order unless `ordered`."""
        raise NotImplementedError


def check_granularity(granularity: str) -> None:
    if granularity not in GRANULARITIES:
        raise ValueError(f"`granularity` must be one of {', '.join(GRANULARITIES)}, got {granularity!r}")


def plain_word(text: Any, quad: Iterable[Any], confidence: Any = None) -> Word:
    """Make a Word of Python numbers from what an engine gives (numpy scalars, arrays, lists)."""
    a, b, c, d = ((float(x), float(y)) for x, y in quad)
    if not np.isfinite([a, b, c, d]).all():
        raise ValueError(f"a box with corners that are not finite: {[a, b, c, d]}")
    known = confidence is not None and np.isfinite(confidence)
    return Word(str(text), (a, b, c, d), float(confidence) if known else None)


@contextmanager
def on_picture(engine: str, page: str) -> Iterator[None]:
    """Turn whatever an engine raises on a picture into an EngineFailure that names both."""
    try:
        yield
    except Exception as error:
        reason = " ".join(str(error).split()) or "no reason given"
        raise EngineFailure(f"{page}: {engine} failed on it ({type(error).__name__}: {reason}), so no words") from error


@contextmanager
def quiet(logger: str) -> Iterator[None]:
    """Silence Python's warnings and one logger inside the block only."""
    noisy = logging.getLogger(logger)
    disabled, level = noisy.disabled, noisy.level
    noisy.disabled = True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        noisy.disabled = disabled
        noisy.setLevel(level)
