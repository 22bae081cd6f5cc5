"""Sources of pages: a folder, a JSONL, a data set, the bundled pages, or objects in memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from headscope import resources
from headscope.page import Page
from headscope.page.dataset import dataset
from headscope.page.folder import folder
from headscope.page.jsonl import jsonl
from headscope.page.listing import near, unique

__all__ = ["as_pages", "bundled", "dataset", "folder", "jsonl"]

SPLITS = ("probe", "evaluation")


def bundled(split: str = "probe", limit: int | None = None) -> list[Page]:
    """List the pages that ship with headscope: 40 for the probe, or 100 others that only evaluations use."""
    if split not in SPLITS:
        raise ValueError(f"`split` must be one of {', '.join(SPLITS)}; got {split!r}{near(split, SPLITS)}")
    return jsonl(resources.find("data", "pages", f"{split}.jsonl"), limit)


def as_pages(pages: Any) -> list[Page]:
    """Make pages of whatever a caller has.

    pages: the name "bundled"; a path (folder, glob, picture file or .jsonl); a Page; a picture (PIL, array, or a file's
    bytes); or several of these in any iterable.
    """
    if not (listed := unique(_each(pages))):
        raise ValueError("no pages in `pages`: it is empty; give a path, a picture, or a list of them")
    return listed


def _each(item: Any) -> Iterator[Page]:
    if isinstance(item, Page):
        yield item
    elif isinstance(item, (str, Path)):
        yield from _named(item)
    elif isinstance(item, (bytes, np.ndarray, Image.Image)):
        yield Page(Path(os.fsdecode(getattr(item, "filename", "") or "picture")).name, item)
    elif isinstance(item, Iterable) and not (isinstance(item, dict) or hasattr(item, "shape")):
        for one in item:
            yield from _each(one)
    else:
        raise ValueError(f"`pages` must be a path, a Page, a picture, or a list of them; got {type(item).__name__}")


def _named(item: str | Path) -> list[Page]:
    if item == "bundled":
        return bundled()
    return jsonl(item) if Path(item).suffix.lower() == ".jsonl" else folder(item)
