"""A shape: the numbers of weights of a decoder's layers, and of what a token adds to their caches."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass


@dataclass(frozen=True)
class Layer:
    """One decoder layer, counted in numbers, not bytes.

    attention: weights of its query, key, value and output projections. feed_forward: weights of the gate, up and down
    projections that every token uses (a dense layer's, a shared expert's). expert: weights of one routed expert.
    experts, active: routed experts, and how many of them a token uses. other: norms, biases, routers.
    kv: numbers that a token adds to the cache, 2 * KV heads * head dim. window: tokens that its attention sees; None:
    all.
    """

    attention: int
    feed_forward: int
    kv: int
    other: int = 0
    expert: int = 0
    experts: int = 0
    active: int = 0
    window: int | None = None

    @property
    def use(self) -> float:
        """Chance that a token uses a given expert, routing being even."""
        return self.active / self.experts if self.experts else 0.0

    @property
    def weights(self) -> int:
        """All its weights, every expert included."""
        return self.attention + self.feed_forward + self.expert * self.experts + self.other

    def visible(self, context: int) -> int:
        """Tokens of a context that its attention sees."""
        return context if self.window is None else min(context, self.window)


@dataclass(frozen=True)
class Shape:
    """A decoder. layers: in order. hidden: its width. vocabulary: rows of the embedding table and of the head.

    tied: whether head and embedding table are one. final: the weights of the norm before the head.
    """

    layers: tuple[Layer, ...]
    hidden: int
    vocabulary: int
    tied: bool
    final: int

    @property
    def weights(self) -> int:
        """All its weights: layers, last norm, embedding table, and the head where it is a table of its own."""
        tables = (1 if self.tied else 2) * self.hidden * self.vocabulary
        return sum(layer.weights for layer in self.layers) + self.final + tables

    @property
    def kinds(self) -> dict[Layer, int]:
        """The different layers, in order of appearance, with how many there are of each."""
        return dict(Counter(self.layers))
