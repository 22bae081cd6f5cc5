"""Records of pages that no model ever saw: random, with ties and zeros, small."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from headscope.scores import HeadScores, PageRecord

MODEL = {"id": "tiny/one", "revision": "main", "config_hash": "c0ffee", "family": "tiny"}
GEOMETRY = {"layers": 3, "heads": 4, "kv_heads": 2}
PROBE = {"statistic": "hit", "match": "aligned", "ocr": {"engine": "words", "version": "1"}, "seed": 0}
SOFTWARE = {"headscope": "0.1.0", "torch": "2.14.1"}


@pytest.fixture
def record() -> Callable[..., PageRecord]:
    """Make the record of page number `place`."""

    def make(place: int, name: str | None = None, layers: int = 3, heads: int = 4) -> PageRecord:
        draw = np.random.default_rng(place)
        shape = (layers, heads)
        return PageRecord(
            name=name or f"page-{place}.png",
            hash=f"{place * 7919 % 1000:03d}",
            words=5,
            cropped=place % 2,
            tokens=12,
            credited=8,
            hit=torch.from_numpy(draw.integers(0, 4, shape) / draw.integers(1, 8, shape)),
            mass=torch.from_numpy(draw.random(shape)),
            first_key=torch.from_numpy(draw.integers(0, 3, shape)),
            first_cell=torch.from_numpy(draw.integers(0, 2, shape)),
        )

    return make


@pytest.fixture
def scores() -> Callable[..., HeadScores]:
    """Make the scores of records, as a probe would."""

    def make(records: list[PageRecord], failed: Any = (), keep_pages: bool = True, **changes: Any) -> HeadScores:
        model = MODEL | GEOMETRY | changes.pop("model", {})
        software = SOFTWARE | changes.pop("software", {})
        probe = PROBE | changes
        return HeadScores.from_records(
            records, failed, model=model, probe=probe, software=software, keep_pages=keep_pages
        )

    return make
