"""The ledger: all that a config says of a decode step, in bytes, in one place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from headscope.accounting.config import as_config
from headscope.accounting.crossover import Keep, Savings, bounds, crossover, savings
from headscope.accounting.layout import read_shape
from headscope.accounting.memory import Memory, count_vision, memory
from headscope.accounting.precision import Precision, read_precision
from headscope.accounting.shape import Shape
from headscope.accounting.speculation import Costs
from headscope.accounting.step import StepBytes, step_bytes

CONTEXTS = tuple(2**power for power in range(11, 18))  # 2K to 128K, the paper's
FINE = tuple(round(2 ** (11 + step / 8)) for step in range(49))  # the same, eight to a doubling, for a plot


@dataclass(frozen=True)
class Account:
    """One decode step of a model at a context and a batch, and what the sparse branches would save.

    kept: tokens that a KV head of a draft reads. config: where it was all read from.
    """

    name: str
    shape: Shape
    precision: Precision
    context: int
    batch: int
    keep: Keep
    kept: int
    config: Any = field(repr=False, compare=False)

    @cached_property
    def step(self) -> StepBytes:
        """What the dense step reads."""
        return step_bytes(self.shape, self.precision, self.context, batch=self.batch)

    @cached_property
    def savings(self) -> Savings:
        """What each branch saves."""
        return savings(self.shape, self.precision, self.context, self.batch, self.keep)

    @property
    def bounds(self) -> dict[str, float]:
        """Ideal speed-ups: projection, feed_forward, kv, both."""
        return bounds(self.step, self.savings)

    @property
    def crossover_tokens(self) -> float | None:
        """Context at which both branches save the same, for all projections."""
        return crossover(self.shape, self.precision, self.batch, self.keep)

    @property
    def crossover_feed_forward_tokens(self) -> float | None:
        """The same for the feed-forward projections alone."""
        return crossover(self.shape, self.precision, self.batch, self.keep, feed_forward=True)

    @property
    def costs(self) -> Costs:
        """What speculation costs here."""
        return Costs(self.shape, self.precision, self.context, self.kept, self.batch)

    @cached_property
    def memory(self) -> Memory:
        """What weights and caches take, a vision tower included, which no decode step reads."""
        vision = count_vision(self.config)
        return memory(self.shape, self.precision, self.context, self.batch, self.keep.kv, vision)

    def at(self, **changes: Any) -> Account:
        """Give the account at another `context` or `batch`."""
        return replace(self, **changes)

    def curve(self, contexts: Sequence[int] = CONTEXTS) -> list[dict[str, float]]:
        """Give the bounds of each branch at several contexts."""
        return [{"context": context, **self.at(context=context).bounds} for context in contexts]


def account(
    config: Any,
    *,
    name: str | None = None,
    context: int = 32768,
    batch: int = 1,
    keep_act: float = 0.5,
    keep_kv: float = 0.3,
    draft_tokens: int | None = None,
    dtype: Any = None,
    weight_dtype: Any = None,
    kv_dtype: Any = None,
) -> Account:
    """Account for one decode step of a model from its config alone: no weights, no GPU.

    config: a transformers config, a dict such as config.json holds, a path, the name of one that ships
    (`llama-3.1-8b`) or a hub id. name: how the account calls it. context: tokens in the cache of each of `batch`
    sequences. keep_act: part of the activation channels that the projection branch keeps; keep_kv: part of the cache
    that the KV branch reads. draft_tokens: those that a KV head of a speculative draft reads; None: keep_kv of the
    context.
    dtype, weight_dtype, kv_dtype: of head and embeddings, of the projections, of the cache; None: the config's.
    """
    found = as_config(config)
    keep = Keep(keep_act, keep_kv)
    for label, value in (("context", context), ("batch", batch)):
        _check_count(label, value)
    draft = max(1, round(keep_kv * context)) if draft_tokens is None else draft_tokens
    _check_count("draft_tokens", draft)
    return Account(
        name=name or _name(config, found),
        shape=read_shape(found),
        precision=read_precision(found, dtype=dtype, weight_dtype=weight_dtype, kv_dtype=kv_dtype),
        context=context,
        batch=batch,
        keep=keep,
        kept=min(draft, context),
        config=found,
    )


def _name(given: Any, config: Any) -> str:
    if isinstance(given, str | Path):
        return str(given)
    return str(getattr(config, "_name_or_path", "") or config.model_type)


def _check_count(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"`{name}` must be a whole number above 0, got {value!r}")
