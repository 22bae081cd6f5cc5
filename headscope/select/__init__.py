"""Selections: which of a prompt's tokens every KV head of a layer keeps, given how many.

    selection(prompt, kept, /, *, window, **settings) -> bool [row, kv, token]

prompt: one layer's queries and keys (`Prompt`). kept: int64 [row, kv], tokens to keep, exactly, on the prompt's device.
window: the last prompt tokens, which every head keeps. A selection of your own is a function like these.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable
from typing import Any

from torch import Tensor

from headscope.select.prompt import Prompt
from headscope.select.selections import (
    importances,
    observation_window,
    random,
    sinks_and_recent,
    text_guided,
)

__all__ = [
    "SELECTIONS",
    "Prompt",
    "Selection",
    "find_selection",
    "importances",
    "observation_window",
    "random",
    "sinks_and_recent",
    "text_guided",
]

Selection = Callable[..., Tensor]
SELECTIONS: dict[str, Selection] = {
    function.__name__: function for function in (observation_window, text_guided, sinks_and_recent, random)
}


def find_selection(select: str | Selection, window: int) -> Selection:
    """Give a selection, by name or as a function, that keeps the last `window` tokens as the budget does.

    Raises ValueError for an unknown name, and for a `functools.partial` that was given another window.
    """
    if isinstance(select, str):
        select = _named(select)
    if not callable(select):
        raise ValueError(f"`select` must be a function or one of {', '.join(SELECTIONS)}, got {select!r}")
    given: Any = select.keywords.get("window", window) if isinstance(select, functools.partial) else window
    if given != window:
        raise ValueError(
            f"`select` must keep the budget's window of {window} tokens, got a selection with window {given}; plan the "
            "budget with the same `window`, or leave it out of the selection"
        )
    return functools.partial(select, window=window)


def _named(select: str) -> Selection:
    if select not in SELECTIONS:
        near = difflib.get_close_matches(select, SELECTIONS, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"`select` must be a function or one of {', '.join(SELECTIONS)}, got {select!r}{hint}")
    return SELECTIONS[select]
