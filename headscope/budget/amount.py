"""An amount: what a person asks to keep (tokens a head, a ratio, bytes, GiB), as tokens in all."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch

from headscope.budget.precision import token_bytes
from headscope.scores.score_file import is_count

WAYS = ("per_head", "total", "ratio_kept", "bytes", "gib")


@dataclass(frozen=True)
class Amount:
    """One of the first five says how much; all of these come to a whole number of tokens, rounded down.

    per_head: tokens that a head keeps on average. total: tokens of all heads together. ratio_kept: the part of the
    prompt that is kept, above 0 and at most 1. bytes, gib: memory for the keys and values of `batch` sequences with
    heads of `head_dim` numbers of `dtype`; given a `context` longer than the prompt, generated tokens fill the rest of
    it, and their memory is set aside first (every head keeps them all).
    """

    per_head: int | None = None
    total: int | None = None
    ratio_kept: float | None = None
    bytes: int | None = None
    gib: float | None = None
    batch: int = 1
    context: int | None = None
    dtype: str | torch.dtype = "bfloat16"
    head_dim: int | None = None

    def __post_init__(self) -> None:
        given = [way for way in WAYS if getattr(self, way) is not None]
        if len(given) > 1:
            raise ValueError(f"one of {_names(WAYS)} says how much to keep, got {_names(given)}; give one")
        for name in ("per_head", "total", "bytes", "batch", "context", "head_dim"):
            _check_count(name, getattr(self, name))
        for name in ("ratio_kept", "gib"):
            _check_positive(name, getattr(self, name))
        if self.ratio_kept is not None and self.ratio_kept > 1:
            raise ValueError(f"`ratio_kept` must be at most 1: it is the part that is kept; got {self.ratio_kept}")
        if self.context is not None and not self.in_memory:
            raise ValueError("`context` goes with `bytes` or `gib`; give the prompt's length as `prompt`")

    @property
    def in_memory(self) -> bool:
        """Whether it was given as memory."""
        return self.bytes is not None or self.gib is not None

    def tokens(self, heads: int, prompt: int | None) -> int:
        """Count the tokens that all `heads` (layers x KV heads) keep together, rounded down.

        prompt: its length in tokens, which a ratio needs.
        """
        if self.in_memory:
            return self._paid(heads, prompt)
        if self.ratio_kept is not None:
            if prompt is None:
                raise ValueError("`prompt` must be the prompt's length in tokens for a `ratio_kept`; got None")
            return int(_exact(self.ratio_kept) * heads * prompt)
        if self.total is None and self.per_head is None:
            raise ValueError(f"one of {_names(WAYS)} must say how much to keep; give per_head=64, for example")
        return int(self.total or (self.per_head or 0) * heads)

    def _paid(self, heads: int, prompt: int | None) -> int:
        context, length = self.context, self.context if prompt is None else prompt
        if context is not None and length is not None and context < length:
            raise ValueError(f"`context` must hold the prompt of {length} tokens, got {context}")
        memory = self.bytes if self.bytes is not None else int(_exact(self.gib) * 2**30)
        generated = heads * (context - length) if context is not None and length is not None else 0
        tokens = memory // (self.batch * token_bytes(self.dtype, self.head_dim)) - generated
        if tokens < 1:
            raise ValueError(
                f"`{'gib' if self.bytes is None else 'bytes'}` must pay for more than the {generated} tokens that "
                f"{heads} heads generate; got {memory} bytes for {self.batch} sequences"
            )
        return tokens


def _exact(number: Any) -> Fraction:
    """Take a number as it is written: .29 of 100 is 29, whatever binary fractions say."""
    return Fraction(str(number))


def _check_count(name: str, value: Any) -> None:
    if value is not None and not is_count(value):
        raise ValueError(f"`{name}` must be a whole number above 0, got {value!r}")


def _check_positive(name: str, value: Any) -> None:
    if value is not None and (isinstance(value, bool) or not 0 < value < float("inf")):
        raise ValueError(f"`{name}` must be a number above 0, got {value!r}")


def _names(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in names)
