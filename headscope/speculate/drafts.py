"""Drafts: what proposes the tokens that the dense model then verifies.

    draft(model, /, **settings) -> Kept | EarlyExit | Lookup

A draft of your own is a function like these.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from headscope.attach.plan import FixedPlan, Plan, make_plan
from headscope.attach.step import Policy
from headscope.budget import Budget
from headscope.budget.plan import Rule
from headscope.families import geometry
from headscope.scores import HeadScores
from headscope.select import Selection, find_selection
from headscope.speculate import lookup

Find = Callable[[Tensor, Tensor, int], Tensor]


@dataclass(frozen=True)
class Kept:
    """The model itself on the prompt tokens that a plan and a selection keep, and on all that came after."""

    policy: Policy


@dataclass(frozen=True)
class EarlyExit:
    """The model's first layers on the dense cache itself, then its last norm and its head."""

    layers: int


@dataclass(frozen=True)
class Lookup:
    """No model: `find` takes ids [row, capacity], lengths [row] and gamma, and gives int64 [row, gamma]; -1: none."""

    find: Find


Draft = Kept | EarlyExit | Lookup


def head_budget(
    model: nn.Module,
    /,
    *,
    budget: Budget | str | Path | None = None,
    scores: HeadScores | str | Path | None = None,
    per_head: int | None = None,
    rule: str | Rule | None = None,
    window: int | None = None,
    select: str | Selection = "observation_window",
    pool: int | None = None,
    **plan: Any,
) -> Kept:
    """Keep of the prompt what each head's budget says: a Budget or its file, or scores and the keywords of `allocate`.

    per_head: average of a KV head's kept prompt tokens. select: which are kept, by name or as a function. pool: of
    observation_window.
    """
    keywords = {"scores": scores, "per_head": per_head, "rule": rule, "window": window} | plan
    given = {name: value for name, value in keywords.items() if value is not None}
    return _kept(make_plan(budget, given, geometry(_config(model))), _pooled(select, pool))


def observation_window(
    model: nn.Module, /, *, per_head: int = 64, window: int = 32, pool: int = 5, sinks: int = 0
) -> Kept:
    """Keep as much in every head: the window, and what the window's queries attend to most (SnapKV)."""
    settings = {"pool": pool, "sinks": sinks}
    return _kept(_even(model, per_head, window), partial(find_selection("observation_window", window), **settings))


def text_guided(model: nn.Module, /, *, per_head: int = 64, window: int = 1) -> Kept:
    """Keep as much in every head: all text, and the visual tokens that the text after them attends to most (StD).

    per_head: StD's K + m_t, text included. window: last prompt tokens that are kept, whatever they are.
    """
    return _kept(_even(model, per_head, window), "text_guided")


def sinks_and_recent(model: nn.Module, /, *, per_head: int = 64, window: int = 32, sinks: int = 4) -> Kept:
    """Keep as much in every head: the first `sinks` tokens and the most recent ones (StreamingLLM)."""
    return _kept(_even(model, per_head, window), partial(find_selection("sinks_and_recent", window), sinks=sinks))


def early_exit(model: nn.Module, /, *, layers: int | None = None) -> EarlyExit:
    """Run the first layers only, with no training for it (LayerSkip, Elhoushi et al. 2024, as StD's baseline does).

    layers: how many; None: half of them.
    """
    there = geometry(_config(model)).layers
    chosen = max(1, there // 2) if layers is None else layers
    if isinstance(chosen, bool) or not isinstance(chosen, int) or not 0 < chosen < there:
        raise ValueError(
            f"`layers` must be a whole number from 1 to {there - 1}, fewer than the model's, got {layers!r}"
        )
    return EarlyExit(chosen)


def prompt_lookup(model: nn.Module, /, *, ngram: int = 2) -> Lookup:
    """Propose what followed the last tokens where they stood before, in prompt or answer (Saxena 2023).

    ngram: last tokens that are looked for, at first; then one fewer, down to one.
    """
    if isinstance(ngram, bool) or not isinstance(ngram, int) or ngram < 1:
        raise ValueError(f"`ngram` must be a whole number of tokens above 0, got {ngram!r}")
    config = _config(model)
    names = ("image_token_id", "video_token_id")
    never = [token for name in names if (token := getattr(config, name, None)) is not None]
    return Lookup(partial(lookup.find, ngram=ngram, tokens=config.get_text_config().vocab_size, never=tuple(never)))


def none(model: nn.Module, /) -> None:
    """No draft: plain decoding, where a draft must be named."""


DRAFTS: dict[str, Callable[..., Draft]] = {
    function.__name__: function
    for function in (head_budget, text_guided, observation_window, sinks_and_recent, early_exit, prompt_lookup)
}


def find_draft(draft: str | Callable[..., Draft]) -> Callable[..., Draft]:
    """Give a draft's function by name; a function is one already. Raises ValueError for an unknown name."""
    if callable(draft):
        return draft
    if draft not in DRAFTS:
        near = difflib.get_close_matches(str(draft), DRAFTS, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"`draft` must be a function or one of {', '.join(DRAFTS)}, got {draft!r}{hint}")
    return DRAFTS[draft]


def check_settings(function: Callable[..., Draft], settings: dict[str, Any]) -> None:
    """Refuse settings that a draft does not have."""
    parameters = inspect.signature(function).parameters.values()
    if any(each.kind == each.VAR_KEYWORD for each in parameters):
        return
    known = [each.name for each in parameters if each.kind in (each.KEYWORD_ONLY, each.POSITIONAL_OR_KEYWORD)]
    if unknown := sorted(settings.keys() - set(known)):
        name = getattr(function, "__name__", type(function).__name__)
        has = f"has {', '.join(known)}" if known else "has none"
        raise ValueError(f"`{unknown[0]}` is not a setting of the draft {name}, which {has}")


def nothing_kept(model: nn.Module) -> Policy:
    """Give a policy for drafts that keep no segments of their own."""
    return _kept(_even(model, 1, 1), "sinks_and_recent").policy


def _kept(plan: Plan, select: str | Selection) -> Kept:
    return Kept(Policy(plan, find_selection(select, plan.window), offload=False, pieces=False))


def _even(model: nn.Module, per_head: int, window: int) -> Plan:
    shape = geometry(_config(model))
    if isinstance(per_head, bool) or not isinstance(per_head, int) or per_head < window:
        raise ValueError(f"`per_head` must be a whole number, at least the window of {window}, got {per_head!r}")
    return FixedPlan(Budget(torch.full((shape.layers, shape.kv_heads), per_head), window))


def _pooled(select: str | Selection, pool: int | None) -> str | Selection:
    if pool is None:
        return select
    if select != "observation_window":
        raise ValueError("`pool` is a setting of the selection observation_window only; leave it out")
    return partial(find_selection(select, 0).func, pool=pool)  # type: ignore[attr-defined]


def _config(model: Any) -> Any:
    return model.config
