"""The text of a plan: its JSON object as a person reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headscope.cli.account_text import size
from headscope.cli.summary import table

OPTIONS = ("option", "ms a token", "of dense speed", "memory", "speed is", "quality")
TOLD = ("speed", "quality", "memory")


def of(document: Mapping[str, Any]) -> str:
    """Lay a plan out: what is recommended and why, all options, what is missing."""
    sections = [_asked(document), _recommended(document), _options(document["options"]), _missing(document["missing"])]
    return "\n\n".join(section for section in sections if section)


def _asked(document: Mapping[str, Any]) -> str:
    gpu = document["gpu"]
    memory = "" if gpu["memory_bytes"] is None else f", {size(gpu['memory_bytes'])} of memory"
    bandwidth = "" if gpu["tb_per_s"] is None else f", {gpu['tb_per_s']:g} TB/s by its datasheet"
    sequences = "one sequence" if document["batch"] == 1 else f"{document['batch']} sequences"
    quality = f"perplexity may rise by {document['quality']:g}" if document["quality"] else "no loss of quality"
    return (
        f"model {document['model']} on {gpu['name']}{bandwidth}{memory}\n"
        f"{sequences} of {document['context']} tokens; {quality}"
    )


def _recommended(document: Mapping[str, Any]) -> str:
    chosen = document["recommended"]
    if chosen is None:
        return "recommended: none; not even the dense model fits in the memory"
    lines = [
        f"recommended: {chosen['name']}; {chosen['ms_per_token']:.3f} ms a token, {chosen['speed_up']:.2f}x of dense, "
        f"{size(chosen['memory_bytes'])}"
    ]
    return "\n".join([*lines, *(f"- {name} {_told(chosen[name])}" for name in TOLD)])


def _told(evidence: Mapping[str, Any]) -> str:
    commit = f"commit {evidence['commit']}" if evidence["commit"] else None
    where = ", ".join(part for part in (evidence["file"], evidence["cell"], commit) if part)
    return f"{evidence['kind']}: {evidence['what']}" + (f" ({where})" if where else "")


def _options(options: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (
            option["name"],
            f"{option['ms_per_token']:.3f}",
            f"{option['speed_up']:.2f}x",
            size(option["memory_bytes"]) + ("" if option["fits"] is not False else ", too much"),
            option["speed"]["kind"],
            _quality(option),
        )
        for option in options
    ]
    return table(OPTIONS, rows)


def _quality(option: Mapping[str, Any]) -> str:
    if option["lossless"]:
        return "lossless"
    if option["admitted"]:
        return "admitted"
    return "not shown" if option["quality"]["kind"] == "missing" else "refused"


def _missing(missing: Sequence[str]) -> str:
    return "\n".join(["missing:", *(f"- {what}" for what in missing)]) if missing else ""
