"""A listing of pages: how many to take, and a name of its own for each."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from typing import TypeVar

from headscope.page import Page

Item = TypeVar("Item")


def check_limit(limit: int | None) -> None:
    """Refuse a limit that is no count of pages."""
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise ValueError(f"`limit` must be a whole number of pages, at least 1, or null for all; got {limit!r}")


def take(items: Iterable[Item], limit: int | None) -> list[Item]:
    """Take the first `limit` items, or all; nothing beyond them is read."""
    check_limit(limit)
    return list(islice(items, limit))


def unique(pages: Iterable[Page]) -> list[Page]:
    """Give each page a name of its own: the second `a.png` becomes `a.png (2)`."""
    pages = list(pages)
    given, used = {page.name for page in pages}, set()
    named = []
    for page in pages:
        name, count = page.name, 1
        while name in used or (count > 1 and name in given):
            count += 1
            name = f"{page.name} ({count})"
        used.add(name)
        named.append(page if name == page.name else replace(page, name=name))
    return named


def near(name: object, known: Iterable[str]) -> str:
    """Say what was probably meant, for the end of an error: "; did you mean `box`?", or the names there are."""
    known = list(known)
    if close := difflib.get_close_matches(str(name), known, n=2, cutoff=0.5):
        return f"; did you mean {' or '.join(f'`{one}`' for one in close)}?"
    return f"; there are: {', '.join(known)}" if known else ""
