"""A plan: scores, an amount and a rule, made into a budget."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headscope.budget import rules
from headscope.budget.amount import Amount
from headscope.budget.budget import Budget
from headscope.scores import HeadScores, as_scores, find_shipped
from headscope.scores.score_file import is_count
from headscope.software import versions

Rule = Callable[..., Tensor]
FILES = (".json", ".tsv", ".npy")  # what the names of head files end in, and the ids of models do not


def allocate(
    scores: HeadScores | str | Path,
    *,
    per_head: int | None = None,
    total: int | None = None,
    ratio_kept: float | None = None,
    bytes: int | None = None,
    gib: float | None = None,
    rule: str | Rule = "sparsemm",
    window: int = 32,
    ratio: float = 0.1,
    prompt: int | None = None,
    reduce: str = "sum",
    batch: int = 1,
    context: int | None = None,
    dtype: str | torch.dtype = "bfloat16",
    head_dim: int | None = None,
    **settings: Any,
) -> Budget:
    """Plan how many prompt tokens each (layer, KV head) keeps.

    scores: HeadScores, a head file, or the id of a model whose scores ship with headscope.
    per_head, total, ratio_kept, bytes, gib: how much to keep, in one of these ways; `Amount` explains them with
    `batch`, `context`, `dtype` and `head_dim`. per_head is the average of what a head keeps of the prompt, the window
    included; generated tokens come on top.
    rule: sparsemm, uniform, pyramid, headkv, adaptive, random, full, or a function like those of `budget.rules`.
    window: the last prompt tokens, which every head keeps. ratio: of sparsemm and random; other rules have none.
    prompt: the prompt's length in tokens, which no head exceeds; None: for prompts of any length.
    reduce: how query heads that share a KV head make one score: sum, mean or max.
    settings: the rule's own, such as beta (pyramid, headkv), seed (random), floor and importances (adaptive).
    """
    found, function = _scores(scores), find_rule(rule)
    heads = found.layers * found.kv_heads
    dim = found.model.get("head_dim") if head_dim is None else head_dim
    amount = Amount(per_head, total, ratio_kept, bytes, gib, batch, context, dtype, dim)
    chosen = _settings(function, {"ratio": ratio}, settings)
    prompt = _prompt(prompt, context, chosen.get("importances"))
    _check(window=window, prompt=prompt)
    asked = heads * (prompt or 0) if function is rules.full else amount.tokens(heads, prompt)
    kv = _kv(found, reduce)
    kept = function(kv, asked, window, prompt, **chosen)
    if kept.shape != kv.shape:
        raise ValueError(f"`rule` must give one number a KV head, {list(kv.shape)}, got {list(kept.shape)}")
    return Budget(
        kept,
        window,
        prompt,
        rule=_name(function),
        settings={name: _plain(value) for name, value in chosen.items()},
        model=found.model | ({} if dim is None else {"head_dim": dim}),
        asked=asked,
        moved=_moved(kept, prompt, lambda: function(kv, asked, window, None, **chosen)),
        scores={"sha256": values_hash(found.values), "reduce": reduce, "probe": found.probe},
        software=versions(),
    )


def find_rule(rule: str | Rule) -> Rule:
    """Give a rule by name; a function is one already."""
    if callable(rule):
        return rule
    if rule not in rules.__all__:
        near = difflib.get_close_matches(str(rule), rules.__all__, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"`rule` must be a function or one of {', '.join(rules.__all__)}, got {rule!r}{hint}")
    return getattr(rules, rule)


def _scores(scores: HeadScores | str | Path) -> HeadScores:
    """Take scores as they are, read a file, or find what ships for a model id."""
    if isinstance(scores, str) and not scores.endswith(FILES) and not Path(scores).exists():
        return as_scores(find_shipped(scores))
    return as_scores(scores)


def _kv(scores: HeadScores, reduce: str) -> Tensor:
    """Reduce to KV heads: float64 [layer, kv]. Only ratios count: sums beyond float32 are taken of smaller scores."""
    kv = scores.kv(reduce)
    if not kv.isfinite().all():
        kv = dataclasses.replace(scores, values=scores.values * 2.0**-32).kv(reduce)
    return kv.double()


def _settings(function: Rule, offered: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Give the rule's settings: its defaults, what is offered if it has a setting of that name, and what was given."""
    parameters = list(inspect.signature(function).parameters.values())[4:]
    known = [parameter.name for parameter in parameters if parameter.kind != parameter.VAR_KEYWORD]
    if len(known) == len(parameters) and (unknown := sorted(given.keys() - set(known))):
        has = f"has {', '.join(known)}" if known else "has none"
        raise ValueError(f"`{unknown[0]}` is not a setting of the rule {_name(function)}, which {has}")
    defaults = {parameter.name: parameter.default for parameter in parameters if parameter.default != parameter.empty}
    return defaults | {name: value for name, value in offered.items() if name in known} | given


def _prompt(prompt: int | None, context: int | None, importances: Any) -> int | None:
    """Give the prompt's length: as given, else as the importances of its tokens or the memory's context say."""
    if prompt is None and importances is not None and torch.as_tensor(importances).ndim == 3:
        return torch.as_tensor(importances).shape[-1]
    return context if prompt is None else prompt


def _check(**counts: Any) -> None:
    for name, value in counts.items():
        if not is_count(value) and not (name == "prompt" and value is None):
            raise ValueError(f"`{name}` must be a whole number of tokens above 0, got {value!r}")


def _moved(kept: Tensor, prompt: int | None, uncapped: Callable[[], Tensor]) -> int:
    """Count the tokens that heads have only because others are at the prompt's length."""
    whole = 0 if prompt is None else int((kept >= prompt).sum())
    return int((kept - uncapped()).clamp_min(0).sum()) if 0 < whole < kept.numel() else 0


def _name(function: Rule) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _plain(value: Any) -> Any:
    """Give a setting as a budget file can hold it."""
    if isinstance(value, Tensor):
        return {"shape": list(value.shape), "sha256": values_hash(value)}
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, str | int | float | None) else repr(value)


def values_hash(values: Tensor) -> str:
    """Give a hash of scores, of any shape."""
    return hashlib.sha256(values.detach().cpu().float().contiguous().numpy().tobytes()).hexdigest()
