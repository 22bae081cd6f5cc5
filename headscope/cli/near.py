"""Near names: what a person may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def near(name: str, names: Iterable[str], most: int = 3) -> list[str]:
    """Give the names that look like ``name``, nearest first; ``limit`` is near to ``pages.limit`` too."""
    names = list(names)
    same_leaf = [other for other in names if other.rpartition(".")[2] == name]
    alike = difflib.get_close_matches(name, names, n=most, cutoff=0.6)
    return list(dict.fromkeys(same_leaf + alike))[:most]


def hint(name: str, names: Iterable[str]) -> str:
    """End an error message with the near names, or with all of them where none is near."""
    names = list(names)
    if found := near(name, names):
        return f"; near: {', '.join(found)}"
    return f"; there are: {', '.join(names)}" if names else ""
