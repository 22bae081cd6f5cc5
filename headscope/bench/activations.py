"""Activations: the inputs of a step's projections, as thresholds see them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from headscope.cache.segments import Segments
from headscope.families.projections import PROJECTIONS, projections
from headscope.fused import FusedStep, Stack, find_stack
from headscope.fused.projections import added, fed_forward, projected
from headscope.fused.stack import Layer
from headscope.kernels.norm import Norm, normed
from headscope.kernels.rotate import rotate
from headscope.sparsity import Thresholds, sparsify
from headscope.sparsity.thresholds import sizes

Look = Callable[[Layer, tuple[str, ...], Tensor], Layer]
LEAST = torch.finfo(torch.float32).tiny  # a threshold that leaves out zeros alone


@dataclass(frozen=True, eq=False)
class WatchedStep(FusedStep):
    """A step that shows the inputs of each group of projections, [row, input], before they are projected.

    look: given the layer, the names of the projections and their inputs, gives the layer to go on with.
    """

    look: Look = field(default=lambda layer, names, x: layer)

    def _layer(self, layer: Layer, residual: Tensor, squares: Tensor, positions: Tensor, segments: Segments) -> Tensor:
        rows, new = positions.shape
        norm = Norm(layer.attention_gain, squares, layer.eps)
        layer = self.look(layer, ("q", "k", "v"), normed(residual, norm))
        states = projected(residual, (layer.q, layer.k, layer.v), norm)
        segments.enter()
        held = segments.key, segments.value, segments.starts, segments.lengths
        query = rotate(states.view(rows, new, -1), positions, layer.rotary, *held)
        output = self.attend(query, segments, layer.scaling).reshape(rows * new, -1)
        segments.leave(new)
        layer = self.look(layer, ("o",), output)
        squares = added(output, layer.o, residual)
        norm = Norm(layer.feed_forward_gain, squares, layer.eps)
        layer = self.look(layer, ("gate", "up"), normed(residual, norm))
        output = fed_forward(residual, layer.gate, layer.up, norm)
        layer = self.look(layer, ("down",), output)
        return added(output, layer.down, residual)


@contextmanager
def sparse_weights(model: nn.Module) -> Iterator[Stack]:
    """Store a model's weights as sparse projections read them; gives its stack, whose thresholds leave out nothing.

    One block for many thresholds: storing the weights anew for each would take longer than timing them.
    """
    counts = [[sizes(module) for module in layer.values()] for layer in projections(model)]
    shape = len(counts), len(PROJECTIONS)
    with sparsify(model, Thresholds(torch.full(shape, LEAST), torch.ones(shape), torch.tensor(counts))):
        stack = find_stack(model)
        if stack is None:
            raise ValueError("`model` must have a Llama-like stack for sparse projections")
        yield stack


def choose_thresholds(step: FusedStep, layers: Sequence[Segments], context: int, keep: float) -> Stack:
    """Choose the thresholds that leave exactly a part of the step's own inputs active, layer after layer.

    Ties (bfloat16 has many) leave a few more out. The kernels' time depends on the part alone, so thresholds that were
    found on random activations time it as well as a calibrated model's would.
    """
    found: list[Layer] = []

    def look(layer: Layer, names: tuple[str, ...], x: Tensor) -> Layer:
        level = _level(x, keep)
        layer = replace(layer, **{name: replace(getattr(layer, name), threshold=level) for name in names})
        if names == ("down",):
            found.append(layer)
        return layer

    _run(WatchedStep(step.stack, step.attend, look), layers, context)
    return replace(step.stack, layers=(*found, *step.stack.layers[len(found) :]))


def kept_shares(step: FusedStep, layers: Sequence[Segments], context: int) -> dict[str, Any]:
    """Measure which part of each projection's inputs is active in a step: the mean over layers, and over bytes."""
    shares: dict[str, list[float]] = {}
    read, total = 0.0, 0

    def look(layer: Layer, names: tuple[str, ...], x: Tensor) -> Layer:
        nonlocal read, total
        for name in names:
            linear = getattr(layer, name)
            level = -1.0 if linear.threshold is None else linear.threshold
            share = float((x.abs().float() > level).float().mean())
            shares.setdefault(f"{name}_proj", []).append(share)
            read, total = read + share * linear.weight.numel(), total + linear.weight.numel()
        return layer

    _run(WatchedStep(step.stack, step.attend, look), layers, context)
    means = {name: round(sum(found) / len(found), 4) for name, found in shares.items()}
    every = [share for found in shares.values() for share in found]
    return {**means, "of_bytes": round(read / total, 4), "least": round(min(every), 4), "most": round(max(every), 4)}


def _level(x: Tensor, keep: float) -> float:
    """Give the largest magnitude that is left out."""
    magnitudes = x.abs().float().flatten()
    left_out = min(max(1, round((1 - keep) * magnitudes.numel())), magnitudes.numel())
    return float(magnitudes.kthvalue(left_out).values)


def _run(step: WatchedStep, layers: Sequence[Segments], context: int) -> None:
    """Run one step, and leave lengths and room as they were."""
    before = [(segments.lengths.clone(), segments.room) for segments in layers]
    rows, device = layers[0].lengths.shape[0], layers[0].key.device
    ids = torch.ones(rows, 1, dtype=torch.int64, device=device)
    step(ids, torch.full_like(ids, context), layers)
    for segments, (lengths, room) in zip(layers, before, strict=True):
        segments.lengths.copy_(lengths)
        segments.room = room
