"""Thresholds: how large an input of each projection must be for its weights to be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from headscope.families.projections import PROJECTIONS
from headscope.files import write_atomically
from headscope.sparsity.threshold_file import parse, to_text


@dataclass(frozen=True, eq=False)
class Thresholds:
    """A threshold for each (layer, projection): an input counts where its magnitude is above.

    values: float32 [layer, projection] on the CPU; 0 leaves the projection dense. kept: float64 [layer, projection],
    the part of the inputs above it, where it was calibrated. weights: int64 [layer, projection], numbers in the weight.
    projections: their names, in order. model: whose they are, see `headscope.families.identity`.
    provenance: keep, allocation, data, errors, resolution, software. origin: the file they came from, for errors.
    """

    values: Tensor
    kept: Tensor
    weights: Tensor
    projections: tuple[str, ...] = PROJECTIONS
    model: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    origin: str | None = None

    def __post_init__(self) -> None:
        where = f"`{self.origin}`: " if self.origin else ""
        if tuple(self.projections) != PROJECTIONS:
            raise ValueError(f"{where}expected `projections` {', '.join(PROJECTIONS)}, found {self.projections}")
        dtypes = {"values": torch.float32, "kept": torch.float64, "weights": torch.int64}
        for name, dtype in dtypes.items():
            table = torch.as_tensor(getattr(self, name)).detach().to("cpu", dtype, copy=True)
            if table.ndim != 2 or table.shape[1] != len(PROJECTIONS) or not len(table):
                raise ValueError(
                    f"{where}`{name}` must be [layer, projection] with {len(PROJECTIONS)} projections, "
                    f"got {list(table.shape)}"
                )
            object.__setattr__(self, name, table)
        if len({getattr(self, name).shape for name in dtypes}) > 1:
            raise ValueError(f"{where}`values`, `kept` and `weights` must have one shape")
        if not (self.values.isfinite().all() and (self.values >= 0).all()):
            raise ValueError(f"{where}`values` must be finite numbers from 0 up")
        if not ((self.kept >= 0) & (self.kept <= 1)).all() or not (self.weights > 0).all():
            raise ValueError(f"{where}`kept` must lie in 0..1 and `weights` above 0")

    @property
    def layers(self) -> int:
        """Number of layers."""
        return self.values.shape[0]

    @property
    def keep(self) -> float:
        """The part of the projections' bytes that a decode step reads, where they were calibrated."""
        return float((self.kept * self.weights).sum() / self.weights.sum())

    @property
    def keep_of_layers(self) -> Tensor:
        """The same, layer by layer: float64 [layer]."""
        return (self.kept * self.weights).sum(1) / self.weights.sum(1)

    def of_layer(self, layer: int) -> dict[str, float]:
        """Give a layer's thresholds by the names of its projections."""
        return dict(zip(self.projections, self.values[layer].tolist(), strict=True))

    def check(self, layers: Sequence[Mapping[str, nn.Module]]) -> Thresholds:
        """Refuse a model (its projections, layer by layer) of another shape; gives the thresholds back."""
        name = self.origin or "thresholds"
        if len(layers) != self.layers:
            raise ValueError(
                f"`{name}`: expected {len(layers)} layers, found {self.layers}; these thresholds are another model's"
            )
        for index, layer in enumerate(layers):
            for at, (projection, module) in enumerate(layer.items()):
                if (count := sizes(module)) != int(self.weights[index, at]):
                    raise ValueError(
                        f"`{name}`: expected {count} weights in {projection} of layer {index}, "
                        f"found {int(self.weights[index, at])}; these thresholds are another model's"
                    )
        return self

    def save(self, path: str | Path) -> None:
        """Write the threshold file (JSON, format `headscope.thresholds/1`), whole or not at all."""
        write_atomically(path, to_text(self))

    @classmethod
    def load(cls, path: str | Path) -> Thresholds:
        """Read a threshold file; what is not whole and valid is an error with the file, the expected and the found."""
        return cls(**parse(path))


def sizes(module: Any) -> int:
    """Count the numbers in a projection's weight, packed or not."""
    return int(module.in_features * module.out_features)
