"""A JSONL of pages: one line for each picture, with the words that stand on it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headscope.page import Page, Word
from headscope.page.labels import word
from headscope.page.listing import take, unique


def jsonl(path: str | Path, limit: int | None = None) -> list[Page]:
    """Read pages from lines such as ``{"image": "a.png", "words": [{"text": "Total", "box": [x0, y0, x1, y1]}]}``.

    `image` is a path relative to the JSONL. A word has a `box`, or a `quad` of four corners, in pixels of the upright
    picture. `words` and the page's whole `text` may be left out; other keys are ignored.

    Raises FileNotFoundError when there is no such file, ValueError with file and line for a line that cannot be read.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise FileNotFoundError(f"no pages in `{path}`: no such JSONL file")
    if not (pages := take(_lines(file), limit)):
        raise ValueError(f"no pages in `{path}`: the file has no lines")
    return unique(pages)


def _lines(file: Path) -> Iterator[Page]:
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                text = line.decode("utf-8-sig").strip()
                if text:
                    yield _page(json.loads(text), file.parent)
            except ValueError as error:  # also a JSONDecodeError or a UnicodeDecodeError
                raise ValueError(f"{file.name}, line {number}: {error}") from None


def _page(line: Any, root: Path) -> Page:
    if not isinstance(line, dict) or not isinstance(image := line.get("image"), str) or not image:
        raise ValueError('a line must be an object with an `image` path, as in {"image": "a.png"}')
    words, text = line.get("words"), line.get("text")
    if not (words is None or isinstance(words, list)):
        raise ValueError(f"`words` must be a list or left out; got {words!r}")
    if not (text is None or isinstance(text, str)):
        raise ValueError(f"`text` must be a string or left out; got {text!r}")
    source = root / Path(image).expanduser()
    name = source.name if Path(image).expanduser().is_absolute() else Path(image).as_posix()
    return Page(name, source, None if words is None else tuple(map(_word, words)), text)


def _word(entry: Any) -> Word:
    layouts = {"box": "xyxy", "quad": "quad"}
    given = [key for key in layouts if isinstance(entry, dict) and key in entry]
    if len(given) != 1:
        raise ValueError(f"a word must have `text` and either `box` or `quad`; got {entry!r}")
    return word(entry.get("text"), entry[given[0]], layouts[given[0]])
