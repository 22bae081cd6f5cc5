"""Checks of what a bench is asked to measure, before anything is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from headscope.accounting.config import load_config


def check_shapes(shapes: Sequence[str]) -> None:
    """Refuse shapes that have no config, and none at all."""
    if not shapes:
        raise ValueError("`shapes` must be at least one config such as vicuna-7b, got none")
    for shape in shapes:
        load_config(shape)


def check_counts(least: int = 1, **counts: Iterable[int]) -> None:
    """Refuse counts below the least, and none at all. counts: by the names that errors use."""
    for name, values in counts.items():
        found = list(values)
        if not found or min(found) < least:
            raise ValueError(f"`{name}` must be whole numbers, each at least {least}, got {found or 'none'}")


def check_sections(only: Iterable[str], known: Collection[str]) -> None:
    """Refuse sections that a bench does not have."""
    for name in only:
        if name not in known:
            raise ValueError(f"`only` must be some of {', '.join(known)}, got {name!r}")
