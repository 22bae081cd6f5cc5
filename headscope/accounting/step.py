"""A decode step in bytes: what one forward pass of a batch reads from memory."""

from __future__ import annotations

from dataclasses import dataclass

from headscope.accounting.precision import Precision
from headscope.accounting.shape import Layer, Shape


@dataclass(frozen=True)
class StepBytes:
    """Bytes that one step of a whole batch reads: B_total = B_MLP + B_Attn + B_KV(n) + B_other (ByteCross).

    attention, feed_forward: the projections. head: the language-model head. embedding: one row for each token.
    other: norms, biases and routers. kv: stored keys and values of all sequences.
    """

    attention: float
    feed_forward: float
    head: float
    embedding: float
    other: float
    kv: float

    @property
    def projections(self) -> float:
        """B_MLP + B_Attn."""
        return self.attention + self.feed_forward

    @property
    def weights(self) -> float:
        """All but the cache."""
        return self.projections + self.head + self.embedding + self.other

    @property
    def total(self) -> float:
        """B_total."""
        return self.weights + self.kv


def step_bytes(
    shape: Shape,
    precision: Precision,
    context: int,
    *,
    batch: int = 1,
    new: int = 1,
    keep_act: float = 1.0,
    keep_kv: float = 1.0,
    kept: int | None = None,
) -> StepBytes:
    """Count what one step reads: every weight once for the whole batch, each sequence's cache once.

    context: tokens in the cache of each sequence. new: tokens that each sequence feeds in, 1 to decode, gamma + 1 to
    verify. keep_act: part of the activation channels kept, in every projection. keep_kv: part of the stored keys and
    values read. kept: instead, tokens that a KV head reads at most.
    """
    weight, rest = precision.weight_bytes, precision.rest_bytes
    tokens = batch * new
    attention = sum(layer.attention for layer in shape.layers) * share_read(tokens, keep_act)
    feed_forward = sum(feed_forward_weights(layer, tokens, keep_act) for layer in shape.layers)
    return StepBytes(
        attention=weight * attention,
        feed_forward=weight * feed_forward,
        head=rest * shape.hidden * shape.vocabulary,
        embedding=rest * shape.hidden * tokens,
        other=rest * (sum(layer.other for layer in shape.layers) + shape.final),
        kv=batch * keep_kv * kv_bytes(shape, precision, context, kept),
    )


def share_read(tokens: int, keep: float = 1.0, use: float = 1.0) -> float:
    """Give the part of a weight matrix that a step of several tokens reads, 1 - (1 - use * keep)^tokens.

    A weight column is read when any token activates it. Each token uses the matrix with chance `use` (1, or active /
    experts for a routed expert) and then activates a channel with chance `keep`, independently of the other tokens; one
    token reads use * keep. Real activations agree more than independent ones, so that a batch reads rather less.
    """
    return 1.0 - (1.0 - use * keep) ** tokens


def feed_forward_weights(layer: Layer, tokens: int, keep: float = 1.0) -> float:
    """Count the feed-forward weights that a step reads in a layer, experts by the expected union of several tokens."""
    routed = layer.expert * layer.experts * share_read(tokens, keep, layer.use) if layer.experts else 0.0
    return layer.feed_forward * share_read(tokens, keep) + routed


def kv_bytes(shape: Shape, precision: Precision, context: int, kept: int | None = None) -> float:
    """Bytes of the keys and values that one sequence's step sees: sliding layers their window, no head above `kept`.

    B_KV(n) = sum over layers of 2 * KV heads * head dim * bytes * min(n, window)
    """
    most = context if kept is None else min(kept, context)
    return precision.kv_bytes * sum(layer.kv * min(layer.visible(context), most) for layer in shape.layers)
