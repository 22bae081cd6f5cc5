"""Tables of a crossing campaign in Markdown: crossings beside predictions, speed-ups beside bounds, baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headscope.report.bench_table import NONE, fill, markdown

Row = Mapping[str, Any]
CROSSINGS = ("shape", "keeps", "byte crossover", "predicted", "measured", "95 % interval", "measured - predicted")
SPEED_UPS = ("shape", "context", "dense, ms", "cache alone", "projections alone", "both", "bounds")
BASELINES = (
    "shape",
    "attention",
    "context",
    "dense, ms",
    "of copy bandwidth",
    "window, ms",
    "faster",
    "bytes allow",
    "",
)
BAD = "above its bound: a bad baseline"


def of(document: Row, file: str | Path) -> str:
    """Lay out a result of `headscope bench crossing`. file: where it lies, for the link."""
    shown = [of_crossings(document["crossings"]), of_speed_ups(document["speed_ups"])]
    shown += [of_baselines(document["baselines"])] if document["baselines"] else []
    return "\n\n".join([*shown, fill(_note(document, file))])


def of_crossings(rows: Sequence[Row]) -> str:
    """Lay out where the branches cross: by bytes, as predicted, as measured; K = 1024 tokens."""
    return markdown(CROSSINGS, [_crossing(row) for row in rows])


def _crossing(row: Row) -> list[str]:
    bounds = NONE if row["low"] is None else f"{tokens(row['low'])} .. {tokens(row['high'])}"
    off = NONE if row["off_tokens"] is None else f"{row['off_tokens'] / 1024:+.1f}K"
    measured = _where(row) if row["measured_tokens"] is None else tokens(row["measured_tokens"])
    keeps = f"{row['keep_act']:.0%} / {row['keep_kv']:.0%}"
    return [row["shape"], keeps, tokens(row["byte_tokens"]), tokens(row["predicted_tokens"]), measured, bounds, off]


def _where(row: Row) -> str:
    """Say on which side of what was timed the crossing lies."""
    found = row["advantages_ms"]
    if not found:
        return NONE
    if found[0]["mean"] > 0:
        return f"below {tokens(found[0]['context'])}"
    return f"above {tokens(found[-1]['context'])}"


def tokens(count: float | None) -> str:
    """Give a context in K = 1024 tokens."""
    return NONE if count is None else f"{count / 1024:.1f}K"


def of_speed_ups(rows: Sequence[Row]) -> str:
    """Lay out the speed-ups of all branches where all were timed, in one row for each shape and context."""
    return markdown(SPEED_UPS, [row for row in map(_sped, _together(rows)) if row])


def _together(rows: Sequence[Row]) -> list[dict[str, Row]]:
    """Give the branches of each shape and context that has a step with both; the keep ratios are those of that step."""
    found = []
    for both in (row for row in rows if row["branch"] == "both"):
        here = [row for row in rows if (row["shape"], row["context"]) == (both["shape"], both["context"])]
        kept = {(1.0, 1.0): "dense", (1.0, both["keep_kv"]): "kv", (both["keep_act"], 1.0): "projection"}
        found.append(
            {"both": both} | {kept[key]: row for row in here if (key := (row["keep_act"], row["keep_kv"])) in kept}
        )
    return found


def _sped(branches: Mapping[str, Row]) -> list[str]:
    if set(branches) < {"dense", "kv", "projection", "both"}:
        return []
    both = branches["both"]
    names = ("kv", "projection", "both")
    bounds = " / ".join(f"{branches[name]['bound']:.2f}" for name in names)
    cells = [_faster(branches[name]) for name in names]
    dense = f"{branches['dense']['ms_per_token']['mean']:.2f}"
    return [both["shape"], f"{both['context'] / 1024:g}K", dense, *cells, bounds]


def _faster(row: Row) -> str:
    bounds = row["speed_up"]
    told = f"{bounds['mean']:.2f}x"
    if bounds["low"] is not None:
        told += f" ({bounds['low']:.2f} .. {bounds['high']:.2f})"
    return told + (f", {BAD}" if row["certain"] else "")


def of_baselines(rows: Sequence[Row]) -> str:
    """Lay out how much faster the same window is with each attention."""
    return markdown(BASELINES, [_baseline(row) for row in rows])


def _baseline(row: Row) -> list[str]:
    return [
        row["shape"],
        row["attention"],
        f"{row['context'] / 1024:g}K",
        f"{row['dense_ms']:.2f}",
        f"{row['dense_of_copy']:.0%}",
        f"{row['window_ms']:.2f}",
        f"{row['speed_up']:.2f}x",
        f"{row['bound']:.2f}x",
        BAD if row["above_bound"] else "",
    ]


def _note(document: Row, file: str | Path) -> str:
    hardware, software, settings = (document[part] for part in ("hardware", "software", "settings"))
    known = document["calibration"]
    told = "no calibration" if known is None else f"predicted from {known['file']} (commit {known['commit']})"
    return (
        f"`headscope bench crossing`, {hardware.get('gpu') or hardware['cpu']}, {settings['dtype']}, random weights, "
        f"torch {software['torch']}, commit {document['commit']}; {settings['blocks']} blocks, a fresh process a "
        f"{settings['apart']}; K = 1024 tokens; keeps: of activations / of the cache; {told}, none of whose cells are "
        f"this campaign's; all cells in [{file}]({file})."
    )
