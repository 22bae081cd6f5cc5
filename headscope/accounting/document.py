"""The account as one JSON object."""

from __future__ import annotations

from typing import Any

from headscope.accounting.ledger import Account
from headscope.accounting.shape import Layer
from headscope.accounting.speculation import MOST, accepted_ratio, published_break_even, published_io
from headscope.software import versions

FORMAT = "headscope.bytes/1"
ACCEPTANCES = (0.7, 0.8, 0.9, 0.95)  # shown where none is given
BATCHES = (1, 2, 4, 8, 16)


def to_json(account: Account, *, gamma: int = 9, acceptance: float | None = None, most: int = MOST) -> dict[str, Any]:
    """Give everything an account says; bytes are whole, bounds and tokens are numbers, what never happens is null.

    gamma: draft tokens of a round, for StD's formula. acceptance: the chance that the next draft token is accepted.
    """
    keep, precision = account.keep, account.precision
    return {
        "format": FORMAT,
        "model": account.name,
        "context": account.context,
        "batch": account.batch,
        "keep_act": keep.act,
        "keep_kv": keep.kv,
        "dtypes": {"weight": precision.weight, "kv": precision.kv, "rest": precision.rest},
        "bytes": _whole(account.step, "attention feed_forward head embedding other weights kv total"),
        "layers": [_layer(account, layer, count) for layer, count in account.shape.kinds.items()],
        "savings": _whole(account.savings, "projection feed_forward kv both"),
        "bounds": account.bounds,
        "crossover_tokens": account.crossover_tokens,
        "crossover_feed_forward_tokens": account.crossover_feed_forward_tokens,
        "crossover_by_batch": {str(batch): account.at(batch=batch).crossover_tokens for batch in BATCHES},
        "speculation": _speculation(account, gamma, acceptance, most),
        "memory": _whole(account.memory, "weights vision kv kept total compressed"),
        "curve": account.curve(),
        "software": versions(),
    }


def _layer(account: Account, layer: Layer, count: int) -> dict[str, Any]:
    """Say what one kind of layer weighs; of its experts, those that one token uses."""
    weight, active = account.precision.weight_bytes, layer.feed_forward + layer.active * layer.expert
    found: dict[str, Any] = {
        "count": count,
        "projections": round(weight * (layer.attention + active)),
        "attention": round(weight * layer.attention),
        "feed_forward": round(weight * active),
        "kv_per_token": account.precision.kv_bytes * layer.kv,
        "window": layer.window,
    }
    return found | ({"experts": layer.experts, "active_experts": layer.active} if layer.experts else {})


def _speculation(account: Account, gamma: int, acceptance: float | None, most: int) -> dict[str, Any]:
    costs = account.costs
    return {
        "kept": account.kept,
        "gamma": gamma,
        "most": most,
        "draft_cost": costs.draft_cost,
        "verify_cost": costs.verify_cost(gamma),
        "published_break_even": published_break_even(account.kept, account.context, gamma),
        "break_even": costs.break_even(gamma),
        "at_acceptance": [
            _at(account, gamma, chance, most) for chance in (ACCEPTANCES if acceptance is None else (acceptance,))
        ],
    }


def _at(account: Account, gamma: int, acceptance: float, most: int) -> dict[str, Any]:
    costs, ratio = account.costs, accepted_ratio(acceptance, gamma)
    best = costs.best_gamma(acceptance, most)
    published = published_io(account.kept, account.context, gamma, ratio)
    return {
        "acceptance": acceptance,
        "accepted_ratio": ratio,
        "published_io": published if published < float("inf") else None,  # in tokens of KV a token
        "io": costs.io(gamma, ratio),  # in bytes a token, for the whole batch
        "best_gamma": best,
        "speed_up": costs.speed_up(acceptance, best),
    }


def _whole(values: Any, names: str) -> dict[str, int]:
    return {name: round(getattr(values, name)) for name in names.split()}
