"""The step: new tokens of every row through a decoder stack, on segments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from headscope.cache.segments import Segments
from headscope.fused.projections import added, fed_forward, projected
from headscope.fused.stack import Layer, Stack, find_stack
from headscope.kernels import ragged_decode, ragged_verify
from headscope.kernels.norm import Norm, sum_squares
from headscope.kernels.rotate import rotate

Attend = Callable[[Tensor, Segments, float], Tensor]


@dataclass(frozen=True, eq=False)
class FusedStep:
    """A forward pass: ids and positions, int64 [row, new], and a Segments per layer -> logits [row, new, token].

    attend: the attention, where another than headscope's is to be compared.

    Appends the new tokens to all segments, whose room is their owner's to see to; query i of `new` sees all that stands
    before it. Waits for nothing and gives up nothing to the host, so a CUDA graph can hold it.
    """

    stack: Stack
    attend: Attend = field(default_factory=lambda: attend)

    @torch.no_grad()
    def __call__(self, ids: Tensor, positions: Tensor, layers: Sequence[Segments]) -> Tensor:
        """Run the step."""
        stack = self.stack
        advance(layers, ids.shape[1])
        residual = embedding(ids.flatten(), stack.embedding)
        squares = sum_squares(residual)
        for layer, segments in zip(stack.layers[: len(layers)], layers, strict=True):
            squares = self._layer(layer, residual, squares, positions, segments)
        head = stack.head
        logits = projected(residual, (head,), Norm(stack.gain, squares, stack.eps))
        return logits.view(*ids.shape, -1)

    def _layer(self, layer: Layer, residual: Tensor, squares: Tensor, positions: Tensor, segments: Segments) -> Tensor:
        """Run one layer on the residual stream [row * new, width], in place; give the stream's squares."""
        rows, new = positions.shape
        states = projected(residual, (layer.q, layer.k, layer.v), Norm(layer.attention_gain, squares, layer.eps))
        segments.enter()
        held = segments.key, segments.value, segments.starts, segments.lengths
        query = rotate(states.view(rows, new, -1), positions, layer.rotary, *held)
        output = self.attend(query, segments, layer.scaling).reshape(rows * new, -1)
        segments.leave(new)
        squares = added(output, layer.o, residual)
        output = fed_forward(residual, layer.gate, layer.up, Norm(layer.feed_forward_gain, squares, layer.eps))
        return added(output, layer.down, residual)


def attend(query: Tensor, segments: Segments, scaling: float) -> Tensor:
    """Attend to segments that hold the new tokens already: [row, head, new, dim] -> [row, new, head, dim]."""
    held = segments.key, segments.value, segments.starts, segments.lengths
    if query.shape[2] == 1:
        return ragged_decode(query[:, :, 0], *held, scaling)[0][:, None]
    return ragged_verify(query, *held, scaling)[0].transpose(1, 2)


def advance(layers: Sequence[Segments], new: int) -> None:
    """Count new tokens in all segments, in one operation where `tie_lengths` has tied them."""
    tied = tied_lengths(layers)
    if tied is not None:
        tied += new
    else:
        for segments in layers:
            segments.lengths += new
    for segments in layers:
        segments.room -= new


def tied_lengths(layers: Sequence[Segments]) -> Tensor | None:
    """Give the lengths of all layers as one tensor where `tie_lengths` has tied them; None: they are not tied."""
    first = layers[0].lengths
    places = [(each.lengths.untyped_storage().data_ptr(), each.lengths.storage_offset()) for each in layers]
    if places != [(places[0][0], places[0][1] + at * first.numel()) for at in range(len(layers))]:
        return None
    return first.as_strided((len(layers), *first.shape), (first.numel(), *first.stride()))


def tie_lengths(layers: Sequence[Segments]) -> Tensor:
    """Put the lengths of all layers into one tensor, int32 [layer, row, kv], of which each layer keeps its own part.

    Lengths that are tied already stay where they are, and graphs that were captured on them hold.
    """
    tied = tied_lengths(layers)
    if tied is not None:
        return tied
    tied = torch.stack([segments.lengths for segments in layers])
    for segments, own in zip(layers, tied, strict=True):
        segments.lengths = own
    return tied


def fuse(model: nn.Module) -> FusedStep | None:
    """Give the fused step of a model; None where its decoder stack is not like Llama's (`find_stack`)."""
    stack = find_stack(model)
    return None if stack is None else FusedStep(stack)
