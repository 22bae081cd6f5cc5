"""What the tests of sparsity share: the bundled model's own pages as samples, and thresholds of a tiny model."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from headscope.families import detect
from headscope.page.image import decode
from headscope.page.source import bundled
from headscope.probing.reading import Reader
from headscope.sparsity import Sample, Thresholds, calibrate
from tests.attach.models import MODELS, tokens


@pytest.fixture(scope="session")
def page_samples(reader: tuple[Any, Any]) -> list[Sample]:
    """Two pages with their text as the answer."""
    model, processor = reader
    asker = Reader(model, processor, detect(model.config), "Read the text.", 40)
    readings = [
        asker.given(page.name, decode(page.source, name=page.name), str(page.text))
        for page in bundled("probe", limit=2)
    ]
    return [Sample(reading.arguments(asker.decoder), reading.recorded.tokens) for reading in readings]


@cache
def tiny_thresholds(name: str, keep: float = 0.5) -> Thresholds:
    """Calibrate a tiny model on random tokens, uniformly."""
    samples = [Sample({"input_ids": tokens(60, seed=seed)}) for seed in range(2)]
    return calibrate(MODELS[name]()[0], samples, keep, allocation="uniform", error_tokens=1)
