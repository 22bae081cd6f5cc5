"""A row of a data set, and how its columns are read into a page."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope.page import Page, Point, Word
from headscope.page.labels import check_layout, to_pixels, word
from headscope.page.listing import near

COLUMNS = ("image", "word", "box", "text", "name")


@dataclass(frozen=True)
class RowReader:
    """Reads rows into pages.

    columns: a dotted path for each of COLUMNS that is used. layout, unit: how boxes are written (`page.labels`).
    ignore: words left out. classes: names that a `word` of class ids stands for. root: where relative picture paths
    start.
    """

    columns: Mapping[str, str | None]
    layout: str = "xyxy"
    unit: str = "pixel"
    ignore: Collection[str] = ()
    classes: tuple[str, ...] = ()
    root: Path = Path()

    def __post_init__(self) -> None:
        check_layout(self.layout, self.unit)
        if isinstance(self.ignore, str):
            raise ValueError(f"`ignore` must be a list of words; got {self.ignore!r}")
        for key in self.columns:
            if key not in COLUMNS:
                raise ValueError(f"`columns` must map {', '.join(COLUMNS)}; got {key!r}{near(key, COLUMNS)}")
        if not self.columns.get("image"):
            raise ValueError("`columns` must say which column holds the `image`")
        if bool(self.columns.get("word")) != bool(self.columns.get("box")):
            raise ValueError("`columns` must map both `word` and `box`, or neither")

    def page(self, row: Mapping[str, Any], number: int) -> Page:
        """Read one row; `number` names the page if nothing better does."""
        picture, words = self._get(row, "image"), None
        source = self._source(picture)
        if self.columns.get("word") and (scale := to_pixels(source, self.unit)):
            words = tuple(self._words(row, scale))
        name = self._get(row, "name") if self.columns.get("name") else _file_name(picture)
        return Page(str(name or f"row {number}"), source, words, self._get(row, "text"))

    def _get(self, row: Mapping[str, Any], key: str) -> Any:
        column = self.columns.get(key)
        return dig(row, column) if column else None

    def _words(self, row: Mapping[str, Any], scale: Point) -> Iterator[Word]:
        texts, boxes = self._get(row, "word") or [], self._get(row, "box") or []
        if len(texts) != len(boxes):
            columns = f"`{self.columns['word']}` and `{self.columns['box']}`"
            raise ValueError(f"{columns} must pair up; got {len(texts)} and {len(boxes)}")
        for text, box in zip(map(self._class_name, texts), boxes, strict=True):
            if not _is_blank(text) and text not in self.ignore:
                yield word(text, box, self.layout, scale)

    def _class_name(self, text: Any) -> Any:
        return self.classes[text] if isinstance(text, int) and 0 <= text < len(self.classes) else text

    def _source(self, picture: Any) -> Any:
        """Give what a page keeps of a picture: its bytes, else where it lies; a missing one fails when decoded."""
        if isinstance(picture, Mapping):
            picture = picture.get("bytes") or picture.get("path")
        if isinstance(picture, str):
            return _download(picture) if "://" in picture else self.root / Path(picture).expanduser()
        return b"" if picture is None else picture


def dig(value: Any, path: str) -> Any:
    """Follow a dotted path; a list on the way is followed in each of its entries."""
    step, _, rest = path.partition(".")
    if not isinstance(value, Mapping) or step not in value:
        raise ValueError(f"no column `{step}`{near(step, value if isinstance(value, Mapping) else ())}")
    value = value[step]
    if not rest or value is None:
        return value
    return [dig(entry, rest) for entry in value] if isinstance(value, list) else dig(value, rest)


def _is_blank(text: Any) -> bool:
    return text is None or (isinstance(text, str) and not text.strip())


def _download(url: str) -> bytes:
    from datasets.utils.file_utils import xopen

    with xopen(url, "rb") as file:
        return file.read()


def _file_name(picture: Any) -> str | None:
    path = picture.get("path") if isinstance(picture, Mapping) else picture
    return Path(path.split("::")[0]).name if isinstance(path, str) else None
