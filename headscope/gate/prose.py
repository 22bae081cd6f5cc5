"""Prose: running text to score, and to hide things in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from headscope.gate.decoding import Inputs
from headscope.gate.layout import encode
from headscope.resources import find


@dataclass(frozen=True)
class Prose:
    """A text. name: how a result calls it, without its folder."""

    name: str
    text: str = field(repr=False)

    @property
    def sha256(self) -> str:
        """The hash of its UTF-8 bytes."""
        return sha256(self.text.encode()).hexdigest()

    def ids(self, tokenizer: Any) -> list[int]:
        """Give the whole text as ids, without any that a tokenizer adds."""
        return encode(tokenizer, self.text)


@dataclass(frozen=True)
class Window:
    """Tokens to score behind a prompt. inputs: makes the prompt. continuation: the ids that are scored."""

    name: str
    inputs: Any = field(repr=False, compare=False)
    continuation: tuple[int, ...] = field(repr=False)


def read_prose(path: str | Path | None = None) -> Prose:
    """Read a UTF-8 text file; None: the novel that ships with headscope."""
    chosen = find("data", "text", "persuasion.txt") if path is None else Path(path)
    try:
        text = chosen.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"`text` must be a UTF-8 text file, got {chosen}: {error.reason}") from error
    if not text.strip():
        raise ValueError(f"`text` must have words in it, {chosen} has none")
    return Prose(chosen.name, text)


def windows(
    ids: Sequence[int], *, context: int, scored: int = 512, count: int = 8, start: Sequence[int] = ()
) -> list[Window]:
    """Cut at most `count` windows that do not overlap, spread evenly over a text: `context` tokens, then those scored.

    start: ids that every prompt begins with, a part of its `context`. Raises ValueError for a text too short for one.
    """
    for name, value, least in (("context", context, len(start) + 2), ("scored", scored, 1), ("windows", count, 1)):
        if value < least:
            raise ValueError(f"`{name}` must be at least {least}, got {value}")
    taken = context - len(start)
    length = taken + scored
    if (fits := min(count, len(ids) // length)) < 1:
        raise ValueError(f"`text` must have {length} tokens for one window, it has {len(ids)}; give a longer one")
    firsts = [at * (len(ids) - length) // max(1, fits - 1) for at in range(fits)]
    return [
        Window(
            f"tokens {first}..{first + length}",
            partial(_inputs, (*start, *ids[first : first + taken])),
            tuple(ids[first + taken : first + length]),
        )
        for first in firsts
    ]


def _inputs(ids: Sequence[int]) -> Inputs:
    made = torch.tensor([list(ids)])
    return {"input_ids": made, "attention_mask": torch.ones_like(made)}
