"""A cell: one decode step that was timed or is to be, and what it was found to take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from headscope.accounting.crossover import Keep

BRANCHES = ("dense", "kv", "projection", "both")


@dataclass(frozen=True)
class Cell:
    """A step of a shape. keep_act, keep_kv: the part of the activation channels and of the cache that it reads.

    shape: a config's name. context: tokens in the cache of each of `batch` sequences before any was left out.
    """

    shape: str
    context: int
    keep_act: float = 1.0
    keep_kv: float = 1.0
    batch: int = 1
    dtype: str = "bfloat16"

    def __post_init__(self) -> None:
        Keep(self.keep_act, self.keep_kv)
        for name in ("context", "batch"):
            if (value := getattr(self, name)) < 1:
                raise ValueError(f"`{name}` must be a whole number above 0, got {value!r}")

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Cell:
        """Take the cell out of a result's row."""
        return cls(**{field.name: row[field.name] for field in fields(cls)})

    @property
    def keep(self) -> Keep:
        """What it keeps."""
        return Keep(self.keep_act, self.keep_kv)

    @property
    def branch(self) -> str:
        """Which branch it is: dense, kv, projection or both."""
        return BRANCHES[(self.keep_kv < 1) + 2 * (self.keep_act < 1)]

    @property
    def tokens(self) -> int:
        """Tokens that a KV head reads."""
        return max(1, round(self.keep_kv * self.context))

    def __str__(self) -> str:
        keeps = f"{self.keep_act:g} of activations, {self.keep_kv:g} of the cache"
        return f"{self.shape} at {self.context} tokens, batch {self.batch}, {self.dtype}, {keeps}"


@dataclass(frozen=True)
class Timed:
    """A cell that was timed. ms: of a step. bytes: that the account says it reads."""

    cell: Cell
    ms: float
    bytes: float
