"""Totals: what all page records of a probe add up to."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headscope.scores import stability
from headscope.scores.record import COUNTS, STATISTICS, FailedPage, PageRecord

COUNTED = ("shard", "pages", "pages_failed", *COUNTS, "pages_hash")  # entries of `probe` that are no settings


def average(records: Sequence[PageRecord], statistic: Any, shape: tuple[int, int]) -> tuple[Tensor, dict[str, Any]]:
    """Give the mean of a statistic over pages, float32 [layer, head], and the summary of how stable it is.

    records: in the order in which they are summed, in fp64.
    """
    if statistic not in STATISTICS:
        raise ValueError(f"`statistic` must be one of {', '.join(STATISTICS)}, got {statistic!r}")
    for record in records:
        if record.shape != shape:
            raise ValueError(
                f"page {record.name!r}: expected {shape[0]} layers x {shape[1]} heads, found {record.shape}"
            )
    stack = _stack([getattr(record, statistic) for record in records], shape)
    first_key = _stack([record.first_key for record in records], shape).sum(axis=0)
    first_cell = _stack([record.first_cell for record in records], shape).sum(axis=0)
    summary = stability.summarise(stack, first_key, first_cell, sum(record.credited for record in records))
    return torch.from_numpy(stability.mean(stack).astype(np.float32)), summary


def count(probe: dict[str, Any], records: Sequence[PageRecord], failed: int) -> dict[str, Any]:
    """Add what was counted (pages, words, tokens) and the hash of all pages to the settings of a probe."""
    settings = {key: value for key, value in probe.items() if key not in COUNTED}
    shard = {"shard": probe["shard"]} if probe.get("shard") else {}
    totals = {key: sum(getattr(record, key) for record in records) for key in COUNTS}
    digest = hashlib.sha256("\n".join(sorted(record.hash for record in records)).encode()).hexdigest()
    return settings | shard | {"pages": len(records), "pages_failed": failed} | totals | {"pages_hash": digest}


class NothingScoredError(ValueError):
    """Pages that say nothing about any head: a probe or a merge that came to its end and has no scores to give."""


def require_credit(records: Sequence[PageRecord], failed: Sequence[FailedPage]) -> None:
    """Raise NothingScoredError when no page could be read, none has words, or no answer matched one."""
    if not records and not failed:
        raise NothingScoredError("`pages` must hold at least one page, got none")
    if not records:
        raise NothingScoredError(
            f"none of the {len(failed)} pages could be read; the first: {failed[0].name}: {failed[0].reason}"
        )
    if not any(record.words for record in records):
        raise NothingScoredError(
            f"no words found on any of the {len(records)} pages; give pages with print, or another `ocr`"
        )
    if not any(record.credited for record in records):
        tokens = sum(record.tokens for record in records)
        raise NothingScoredError(
            f"none of the {tokens} answer tokens on {len(records)} pages matched a word of its page, so no head can be "
            "scored; check that the model reads (`prompt`) and that `ocr` finds the same words"
        )


def _stack(matrices: list[Tensor], shape: tuple[int, int]) -> np.ndarray:
    return torch.stack(matrices).numpy() if matrices else np.zeros((0, *shape))
