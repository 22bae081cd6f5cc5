"""The text of an account: its JSON object as a person reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headscope.cli.summary import share, table

PARTS = {
    "attention": "attention projections",
    "feed_forward": "feed-forward",
    "head": "head",
    "embedding": "embedding rows",
    "other": "norms, biases, routers",
    "kv": "keys and values",
    "total": "total",
}
BRANCHES = {
    "projection": "all projections",
    "feed_forward": "feed-forward alone",
    "kv": "cache",
    "both": "projections and cache",
}
READ = ("what a step reads", "bytes", "of the step")
SAVED = ("what is sparse", "keeps", "saves", "faster at most")
DRAFTS = ("acceptance", "of proposed", "StD's I/O", "by it", "bytes a token", "best gamma", "speed-up")


def of(document: Mapping[str, Any]) -> str:
    """Lay the account out: the step, the branches, the crossover, speculation, memory."""
    sections = (_step, _branches, _crossover, _speculation, _memory)
    return "\n\n".join("\n".join(section(document)) for section in sections)


def size(count: float | None) -> str:
    """Give bytes in the largest decimal unit that leaves at least 1, four digits."""
    if count is None:
        return "unknown"
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if count >= scale:
            return f"{count / scale:.4g} {unit}"
    return f"{count:.4g} bytes"


def tokens(count: float | None) -> str:
    """Give a context in K = 1024 tokens, as the paper does, a short one in tokens; None is never."""
    if count is None:
        return "never"
    return f"{count / 1024:.1f}K" if count >= 1024 else f"{count:.0f}"


def _step(document: Mapping[str, Any]) -> list[str]:
    found = document["bytes"]
    weight, kv, rest = (_dtype(document["dtypes"][part]) for part in ("weight", "kv", "rest"))
    rows = [(label, size(found[part]), share(found[part] / found["total"])) for part, label in PARTS.items()]
    return [
        f"model {document['model']}",
        f"one decode step of {document['batch']} at {document['context']} tokens; "
        f"projections {weight}, cache {kv}, the rest {rest}",
        "",
        _left(READ, rows),
        "",
        *map(_layer, document["layers"]),
    ]


def _dtype(name: str) -> str:
    return f"{name} bits" if name[0].isdigit() else name


def _layer(layer: Mapping[str, Any]) -> str:
    window = "" if layer["window"] is None else f", of the last {layer['window']} tokens"
    experts = f" with {layer['active_experts']} of {layer['experts']} experts" if "experts" in layer else ""
    return (
        f"{layer['count']} layers: {size(layer['projections'])} of projections{experts}, "
        f"{layer['kv_per_token']:g} bytes of keys and values a token{window}"
    )


def _branches(document: Mapping[str, Any]) -> list[str]:
    act, kv = share(document["keep_act"]), share(document["keep_kv"])
    keeps = {"projection": act, "feed_forward": act, "kv": kv, "both": f"{act}, {kv}"}
    rows = [
        (label, keeps[name], size(document["savings"][name]), f"{document['bounds'][name]:.2f}x")
        for name, label in BRANCHES.items()
    ]
    return [_left(SAVED, rows)]


def _crossover(document: Mapping[str, Any]) -> list[str]:
    batches = ", ".join(f"{batch}: {tokens(at)}" for batch, at in document["crossover_by_batch"].items())
    return [
        f"crossover in tokens (K = 1024): all projections {tokens(document['crossover_tokens'])}, "
        f"feed-forward alone {tokens(document['crossover_feed_forward_tokens'])}",
        f"the same for all projections by batch, its active channels independent: {batches}",
    ]


def _speculation(document: Mapping[str, Any]) -> list[str]:
    found = document["speculation"]
    verify = "" if found["verify_cost"] < 1.005 else f", a verifying step {found['verify_cost']:.2f}"
    rows = [_draft(at, document) for at in found["at_acceptance"]]
    return [
        f"speculation, drafts on {found['kept']} of {document['context']} tokens: a draft step costs "
        f"{found['draft_cost']:.2f} of a plain one{verify}",
        f"breaks even at gamma {found['gamma']} with {_accepted(found['break_even'])} of the proposed tokens accepted; "
        f"by StD's formula, without weights, {_accepted(found['published_break_even'])}",
        f"at gamma {found['gamma']}, and at the best gamma up to {found['most']} by bytes:",
        "",
        table(DRAFTS, rows),
    ]


def _accepted(ratio: float) -> str:
    return share(ratio) if ratio <= 1 else f"{share(ratio)} (never)"


def _draft(at: Mapping[str, Any], document: Mapping[str, Any]) -> tuple[str, ...]:
    io = at["published_io"]
    published = ("never", "0.00x") if io is None else (f"{io:.0f} tokens", f"{document['context'] / io:.2f}x")
    best = "none" if at["best_gamma"] == 0 else str(at["best_gamma"])
    return (
        f"{at['acceptance']:g}", share(at["accepted_ratio"]), *published, size(at["io"]), best, f"{at['speed_up']:.2f}x"
    )  # fmt: skip


def _memory(document: Mapping[str, Any]) -> list[str]:
    found = document["memory"]
    vision = f", {size(found['vision'])} of vision tower and projector" if found["vision"] else ""
    return [
        f"memory: {size(found['weights'])} of weights{vision}, {size(found['kv'])} of keys and values; "
        f"{size(found['total'])} in all",
        f"with a cache that keeps {share(document['keep_kv'])}: {size(found['kept'])}; "
        f"{size(found['compressed'])} in all",
    ]


def _left(heading: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Lay out a table whose first column is words."""
    width = max(len(row[0]) for row in (heading, *rows))
    return table([f"{heading[0]:{width}}", *heading[1:]], [(f"{row[0]:{width}}", *row[1:]) for row in rows])
