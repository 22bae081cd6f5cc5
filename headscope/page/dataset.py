"""A data set of pages: a Hugging Face data set, from the hub or from local files, read through a column mapping."""

from __future__ import annotations

import glob
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from headscope.page import Page
from headscope.page.listing import check_limit, near, unique
from headscope.page.row import RowReader

READERS = {".parquet": "parquet", ".arrow": "arrow", ".json": "json", ".jsonl": "json", ".ndjson": "json"}
SAVED = ("state.json", "dataset_dict.json")  # what `save_to_disk` leaves: one data set, or several splits


def dataset(
    path: str | Path,
    columns: Mapping[str, str | None],
    *,
    split: str = "train",
    config: str | None = None,
    revision: str | None = None,
    layout: str = "xyxy",
    unit: str = "pixel",
    ignore: Collection[str] = (),
    limit: int | None = None,
) -> list[Page]:
    """Read pages from the rows of a data set, as a stream: nothing beyond the first `limit` rows is fetched.

    path: a name on the hub, or local parquet, arrow or JSON: a folder, a glob, a file, or what `save_to_disk` wrote.
    columns: where a row keeps things, as dotted paths; a step over a list goes into each entry, so "objects.bbox" fits
    a list of objects and an object of lists. `image`; `word` and `box` (both or neither; class ids become the names of
    their classes); `text` of the whole page and `name` (optional).
    layout: xyxy | xywh | quad.  unit: pixel (of the upright picture) | one | thousand (of its width and height).
    ignore: words left out, such as "###" for illegible text; words without text are left out too.
    Pictures stay the bytes they are in the data set: headscope decodes them, once.

    Raises FileNotFoundError when there is no such data set, ValueError for a mapping or a row that does not fit.
    """
    check_limit(limit)
    reader = RowReader(columns, layout, unit, ignore)  # refuses a bad mapping before anything is fetched
    rows = _open(path, split, config, revision).decode(False)
    local = Path(path).expanduser()
    classes = _class_names(rows.features, columns.get("word"))
    reader = replace(reader, classes=classes, root=local if local.is_dir() else local.parent)
    if not (pages := _pages(path, rows, reader, limit)):
        raise ValueError(f"no pages in `{path}`: split `{split}` has no rows")
    return unique(pages)


def _pages(path: str | Path, rows: Any, reader: RowReader, limit: int | None) -> list[Page]:
    from datasets.exceptions import DatasetsError

    pages: list[Page] = []
    try:
        for row in islice(rows, limit):
            pages.append(reader.page(row, len(pages)))
    except (ValueError, DatasetsError) as error:
        raise ValueError(f"`{path}`, row {len(pages)}: {_one_line(error)}") from None
    return pages


def _open(path: str | Path, split: str, config: str | None, revision: str | None) -> Any:
    """Open a data set as a stream of rows, in the data set's own order."""
    local = Path(path).expanduser()
    files = [] if local.is_dir() else sorted(glob.glob(str(local), recursive=True)) or [str(local)] * local.is_file()
    if not (files or local.is_dir() or _is_hub_name(str(path))):
        raise FileNotFoundError(f"no pages in `{path}`: no such file or folder, and no `owner/name` on the hub")
    if files and Path(files[0]).suffix.lower() not in READERS:
        raise ValueError(f"`{path}` must be parquet, arrow or JSON; got `{Path(files[0]).name}`")
    try:
        with _quiet_hub():
            return _load(local if local.exists() else str(path), files, split, config, revision)
    except Exception as error:  # the loader and its readers raise errors that share no class
        kind = FileNotFoundError if isinstance(error, FileNotFoundError) else ValueError
        raise kind(f"cannot open data set `{path}`, split `{split}`: {_one_line(error)}") from None


@contextmanager
def _quiet_hub() -> Iterator[None]:
    """Hold back what the hub's client says of each attempt to reach the hub; the error at the end says it all."""
    from huggingface_hub.utils import logging

    told = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(told)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _load(path: str | Path, files: list[str], split: str, config: str | None, revision: str | None) -> Any:
    import datasets

    if isinstance(path, Path) and any((path / mark).is_file() for mark in SAVED):
        return _saved(datasets.load_from_disk(str(path)), split).to_iterable_dataset()
    if files:
        kind = READERS[Path(files[0]).suffix.lower()]
        return datasets.load_dataset(kind, data_files={split: files}, split=split, streaming=True)
    return datasets.load_dataset(str(path), config, split=split, revision=revision, streaming=True)


def _saved(saved: Any, split: str) -> Any:
    if not isinstance(saved, dict):
        return saved
    if split not in saved:
        raise ValueError(f"no such split{near(split, saved)}")
    return saved[split]


def _is_hub_name(path: str) -> bool:
    is_plain = bool(path) and path.count("/") <= 1 and not path.startswith(("/", ".", "~"))
    return is_plain and not glob.has_magic(path) and Path(path).suffix.lower() not in READERS


def _class_names(features: Any, column: str | None) -> tuple[str, ...]:
    """Find the names of the classes that a column of class ids stands for; () when it holds no class ids."""
    import datasets

    feature = features
    for step in column.split(".") if column else ():
        feature = _entry(feature)
        feature = feature.get(step) if isinstance(feature, dict) else None
    feature = _entry(feature)
    return tuple(feature.names) if isinstance(feature, datasets.ClassLabel) else ()


def _entry(feature: Any) -> Any:
    """Give the feature of a list's entries; other features as they are."""
    import datasets

    while isinstance(feature, (datasets.List, datasets.LargeList)):
        feature = feature.feature
    return feature
