"""Calibration: the thresholds of a model at which a part of its projections' bytes is read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import nn

from headscope.families.identity import model_identity
from headscope.families.projections import PROJECTIONS, SHARED, projections
from headscope.software import versions
from headscope.sparsity import allocation as rules
from headscope.sparsity.histogram import RESOLUTION, Histogram
from headscope.sparsity.layers import Probe, counted, run
from headscope.sparsity.sample import Sample
from headscope.sparsity.thresholds import Thresholds, sizes

RULES = {"greedy": rules.greedy, "uniform": rules.uniform}


def calibrate(
    model: nn.Module,
    samples: Iterable[Sample],
    keep: float = 0.5,
    *,
    allocation: Literal["greedy", "uniform"] = "greedy",
    step: float = 0.1,
    error_tokens: int = 256,
    name: str | None = None,
) -> Thresholds:
    """Find the thresholds at which each layer reads this part of its projections' bytes (TEAL, section 4).

    samples: read once, one at a time. keep: the part, the same in every layer, projections weighted by their bytes.
    allocation: how a layer divides it among its projections: `greedy`, which asks the layer's own output, or `uniform`.
    step: by how much sparsity `greedy` raises a projection at a time. error_tokens: the layer's output is compared on
    the first samples that have so many tokens together. name: the model's id; None: as it was loaded.

    Memory beside the model's: a histogram for each input of a layer, and one layer's inputs at the first samples.
    """
    check_keep(keep, step, error_tokens)
    layers = projections(model)
    seen = Seen(error_tokens)
    with counted(model, lambda: seen.first) as histograms:
        for sample in seen.each(samples):
            run(model, sample)
    if not seen.sequences:
        raise ValueError("`samples` must hold at least one, got none")
    rows = [
        _layer(model, index, layer, histograms[index], seen.held, (allocation, keep, step))
        for index, layer in enumerate(layers)
    ]
    identity = model_identity(model) | ({} if name is None else {"id": name})
    settings = (
        {"rule": allocation} | ({"step": step} if allocation == "greedy" else {}) | {"error_tokens": error_tokens}
    )
    return Thresholds(
        values=[row.values for row in rows],  # type: ignore[arg-type]
        kept=[row.kept for row in rows],  # type: ignore[arg-type]
        weights=[[sizes(module) for module in layer.values()] for layer in layers],  # type: ignore[arg-type]
        model=identity,
        provenance={
            "keep": keep,
            "allocation": settings,
            "data": seen.told,
            "errors": [float(f"{row.error:.6g}") for row in rows],
            "resolution": RESOLUTION,
            "software": versions(),
        },
    )


@dataclass
class Seen:
    """What was calibrated on. first: of the sample that runs now. held: the samples that outputs are compared on."""

    error_tokens: int
    first: int = 0
    sequences: int = 0
    tokens: int = 0
    counted: int = 0
    held: list[Sample] = field(default_factory=list)
    digest: Any = field(default_factory=hashlib.sha256)

    def each(self, samples: Iterable[Sample]) -> Iterator[Sample]:
        """Give the samples one after another, and note each."""
        for sample in samples:
            if sum(held.tokens - held.first for held in self.held) < self.error_tokens:
                self.held.append(sample)
            self.first = sample.first
            self.sequences += 1
            self.tokens += sample.tokens
            self.counted += sample.tokens - sample.first
            self.digest.update(sample.hash.encode())
            yield sample

    @property
    def told(self) -> dict[str, Any]:
        """What a threshold file says of it."""
        return {
            "sequences": self.sequences,
            "tokens": self.tokens,
            "counted": self.counted,
            "hash": self.digest.hexdigest(),
        }


@dataclass(frozen=True)
class Row:
    """One layer's thresholds and kept parts, one a projection, and the error of its output with them."""

    values: list[float]
    kept: list[float]
    error: float


def _layer(
    model: nn.Module,
    index: int,
    modules: dict[str, nn.Module],
    histograms: dict[str, Histogram],
    samples: Sequence[Sample],
    how: tuple[str, float, float],
) -> Row:
    allocation, keep, step = how
    probe = Probe.of(model, index, samples)
    inputs = [histograms[shared] for shared in SHARED]

    def thresholds(sparsity: Sequence[float]) -> list[tuple[float, float]]:
        return [histogram.threshold(part) for histogram, part in zip(inputs, sparsity, strict=True)]

    def error(sparsity: Sequence[float]) -> float:
        return probe.error([value for value, _ in thresholds(sparsity)])

    weights = [sizes(modules[name]) for name in PROJECTIONS]
    sparsity = [0.0] * len(weights) if keep == 1 else RULES[allocation](error, weights, keep, step)
    values, kept = zip(*thresholds(sparsity), strict=True)
    return Row(list(values), list(kept), error(sparsity))


def check_keep(keep: float, step: float, error_tokens: int) -> None:
    """Refuse settings that no calibration can follow; ValueError."""
    if not 1 - rules.MOST <= keep <= 1:
        raise ValueError(
            f"`keep` must be the part of the projections' bytes to read, {1 - rules.MOST:.2f}..1, got {keep}"
        )
    if not 0 < step <= 1:
        raise ValueError(f"`step` must be a sparsity above 0 and at most 1, got {step}")
    if error_tokens < 1:
        raise ValueError(f"`error_tokens` must be a whole number of tokens above 0, got {error_tokens}")
