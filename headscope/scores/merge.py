"""Merging: parts of one probe, or probes of different pages, become one score file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headscope.scores.head_scores import HeadScores
from headscope.scores.record import PageRecord
from headscope.scores.totals import COUNTED, require_credit


def merge(parts: Sequence[str | Path | HeadScores], keep_pages: bool = True) -> HeadScores:
    """Join all shards of one probe, or complete score files of different pages, each with its per-page values.

    All n shards give, bit for bit, the file that one unsharded run would have written with the same `keep_pages`.
    Parts of different models or settings, missing or repeated shards and repeated pages are a ValueError that names
    them; so are parts that credited no token, all together.
    """
    loaded = [_load(part, place) for place, part in enumerate(parts, start=1)]
    if not loaded:
        raise ValueError("`merge` needs at least one score file, got none")
    _check_same(loaded)
    _check_shards(loaded)
    first = loaded[0]
    settings = _settings(first.probe)
    records, failed = _records(loaded), [page for part in loaded for page in part.failed]
    require_credit(records, failed)
    return HeadScores.from_records(
        records,
        failed,
        model=first.model,
        probe=settings,
        software=_software(loaded),
        keep_pages=keep_pages,
    )


def shard_of(probe: dict[str, Any], origin: str | None = None) -> tuple[int, int] | None:
    """Give (i, n) of a probe's shard "i/n", counted from 1; None for a complete probe."""
    text = probe.get("shard")
    if text is None:
        return None
    found = re.fullmatch(r"(\d+)/(\d+)", str(text))
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise ValueError(f'`{origin or "scores"}`: expected `shard` to be "i/n" with 1 <= i <= n, found {text!r}')
    return int(found[1]), int(found[2])


def _load(part: str | Path | HeadScores, place: int) -> HeadScores:
    scores = part if isinstance(part, HeadScores) else HeadScores.load(part)
    if scores.pages is None:
        raise ValueError(
            f"{_name(scores, place)}: expected per-page values (`pages`), found none; "
            "shards keep them, other probes when asked to"
        )
    return scores


def _name(scores: HeadScores, place: int) -> str:
    return f"`{scores.origin}`" if scores.origin else f"part {place}"


def _settings(probe: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in probe.items() if key not in COUNTED}


def _check_same(loaded: list[HeadScores]) -> None:
    """Refuse parts of another model, or probed with other settings, than the first."""
    first = loaded[0]
    for place, part in enumerate(loaded[1:], start=2):
        for section, a, b in (
            ("model", first.model, part.model),
            ("probe", _settings(first.probe), _settings(part.probe)),
        ):
            for key, left, right in differences(a, b):
                raise ValueError(
                    f"{_name(part, place)}: expected `{section}.{key}` to be {left!r}, as in {_name(first, 1)}, "
                    f"found {right!r}"
                )


def differences(a: dict[str, Any], b: dict[str, Any], prefix: str = "") -> list[tuple[str, Any, Any]]:
    """Give the entries that differ as (dotted key, value in a, value in b); a missing entry is None."""
    found: list[tuple[str, Any, Any]] = []
    for key in a | b:
        left, right = a.get(key), b.get(key)
        if isinstance(left, dict) and isinstance(right, dict):
            found += differences(left, right, f"{prefix}{key}.")
        elif _plain(left) != _plain(right):
            found.append((f"{prefix}{key}", left, right))
    return found


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value  # JSON turns tuples into lists


def _check_shards(loaded: list[HeadScores]) -> None:
    """Refuse a set of shards that is not 1/n .. n/n, each once. Complete files have none."""
    shards = [shard_of(part.probe, part.origin) for part in loaded]
    if all(shard is None for shard in shards):
        return
    seen: dict[int, str] = {}
    count = next(shard for shard in shards if shard)[1]
    for place, (part, shard) in enumerate(zip(loaded, shards, strict=True), start=1):
        name = _name(part, place)
        if shard is None or shard[1] != count:
            kind = "a complete probe" if shard is None else f"shard {shard[0]}/{shard[1]}"
            raise ValueError(f"{name}: expected one of {count} shards, found {kind}")
        if shard[0] in seen:
            raise ValueError(
                f"{name}: expected every shard once, found {shard[0]}/{count} again, after {seen[shard[0]]}"
            )
        seen[shard[0]] = name
    if missing := [f"{i}/{count}" for i in range(1, count + 1) if i not in seen]:
        raise ValueError(f"`merge` needs all {count} shards, found {len(seen)}; missing: {', '.join(missing)}")


def _records(loaded: list[HeadScores]) -> list[PageRecord]:
    records: list[PageRecord] = []
    seen: dict[tuple[str, str], int] = {}
    for place, part in enumerate(loaded, start=1):
        for page in part.pages or ():
            if seen.get(page.key, place) != place:
                other = seen[page.key]
                raise ValueError(
                    f"{_name(part, place)}: expected every page in one part, found {page.name!r} "
                    f"(hash {page.hash[:12]}) also in {_name(loaded[other - 1], other)}"
                )
            seen[page.key] = place
            records.append(page)
    return records


def _software(loaded: list[HeadScores]) -> dict[str, Any]:
    """Join software that differs between hosts, such as "2.14.0, 2.14.1"."""
    joined: dict[str, Any] = {}
    for key in {key: None for part in loaded for key in part.software}:
        values = list({str(part.software.get(key)): part.software.get(key) for part in loaded}.values())
        joined[key] = values[0] if len(values) == 1 else ", ".join(sorted(map(str, values)))
    return joined
