"""The projections of some decoder layers with random weights, to be read in turn so that nothing stays in the L2."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from headscope.bench.clock import DEVICE
from headscope.kernels import linear
from headscope.kernels.sparse_linear import Call, Split, Whole, channel_major

Tuning = Split | Whole

LAYERS = 8
GROUPS = ("qkv", "o", "gate_up", "down")  # projections that share their inputs


@dataclass(frozen=True)
class Shape:
    """A model's layer. hidden, feed_forward: widths. heads, kv_heads: numbers of the projections' heads, joined."""

    name: str
    hidden: int
    feed_forward: int
    heads: int
    kv_heads: int

    @property
    def groups(self) -> dict[str, tuple[int, tuple[int, ...]]]:
        """Give the inputs, and the outputs of each weight, of each group."""
        return {
            "qkv": (self.hidden, (self.heads, self.kv_heads, self.kv_heads)),
            "o": (self.heads, (self.hidden,)),
            "gate_up": (self.hidden, (self.feed_forward, self.feed_forward)),
            "down": (self.feed_forward, (self.hidden,)),
        }

    def layer_bytes(self, groups: Sequence[str] = GROUPS) -> int:
        """Bytes of one layer's weights in bf16."""
        return sum(2 * inputs * sum(outputs) for inputs, outputs in (self.groups[group] for group in groups))


SHAPES = [
    Shape("qwen2-vl-7b", 3584, 18944, 3584, 512),
    Shape("llama-3.1-8b", 4096, 14336, 4096, 1024),
]


@dataclass(frozen=True)
class Stack:
    """Some layers of a shape, bf16, each weight row by row as models have it, and channel by channel.

    dense, sparse: [layer][group] lists of weights. inputs: [group] of [row, inputs].
    """

    shape: Shape
    dense: list[dict[str, list[torch.Tensor]]]
    sparse: list[dict[str, list[torch.Tensor]]]
    inputs: dict[str, torch.Tensor]

    @classmethod
    def make(cls, shape: Shape, rows: int = 1) -> Stack:
        """Draw the weights and inputs from the normal distribution."""
        torch.manual_seed(0)
        dense = [
            {name: [_normal(count, inputs) for count in counts] for name, (inputs, counts) in shape.groups.items()}
            for _ in range(LAYERS)
        ]
        sparse = [
            {name: [channel_major(weight) for weight in weights] for name, weights in layer.items()} for layer in dense
        ]
        return cls(shape, dense, sparse, cls.draw(shape, rows))

    @staticmethod
    def draw(shape: Shape, rows: int) -> dict[str, torch.Tensor]:
        return {name: _normal(rows, inputs) for name, (inputs, _) in shape.groups.items()}

    def thresholds(self, group: str, keep: float) -> list[float]:
        """Give thresholds that this part of the inputs is above."""
        if keep == 1:
            return [-1.0] * len(self.shape.groups[group][1])
        return [float(self.inputs[group].abs().float().flatten().quantile(1 - keep))] * len(self.shape.groups[group][1])

    def sparse_work(self, keep: float, tunings: dict[str, Tuning] | None = None) -> Callable[[], None]:
        """Give the sparse projections of all layers in turn; only those groups that have a tuning, if any are given."""
        groups = tunings or dict.fromkeys(GROUPS)
        thresholds = {group: self.thresholds(group, keep) for group in groups}
        calls = [
            self.sparse_call(layer, group, thresholds[group], tuned)
            for layer in self.sparse
            for group, tuned in groups.items()
        ]
        return partial(run, calls)

    def sparse_call(self, layer: Any, group: str, thresholds: list[float], tuned: Tuning | None) -> Callable[[], Any]:
        """Give the call of one group of projections."""
        weights = layer[group]
        return partial(Call("project", self.inputs[group], weights, [None] * len(weights), thresholds).run, tuned)

    def dense_work(self, how: Callable[..., Any], groups: Sequence[str] = GROUPS) -> Callable[[], None]:
        """Give the dense projections of all layers in turn."""
        return partial(
            run, [partial(how, self.inputs[group], layer[group]) for layer in self.dense for group in groups]
        )


def run(calls: Sequence[Callable[[], Any]]) -> None:
    for call in calls:
        call()


def pytorch(x: torch.Tensor, weights: Sequence[torch.Tensor]) -> None:
    """Project by PyTorch, one call a weight."""
    for weight in weights:
        F.linear(x, weight)


def own(x: torch.Tensor, weights: Sequence[torch.Tensor], tuned: linear.Tuning | None = None) -> None:
    """Project by the runtime's own dense kernel, one call a group."""
    linear.launch("project", x, weights, [None] * len(weights), None, None, tuned)


def _normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device=DEVICE, dtype=torch.bfloat16)
