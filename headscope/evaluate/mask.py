"""Masking: a model with some of its heads silenced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from headscope.families import attention_modules, geometry


@contextmanager
def mask_heads(model: nn.Module, heads: Iterable[tuple[int, int]]) -> Iterator[None]:
    """Remove the output of the given (layer, head) pairs inside the block: zeros go into the output projection.

    Their attention is left as it is; nothing of a masked head reaches the residual stream. Raises ValueError for a head
    that the model does not have.
    """
    shape = geometry(model.config)
    by_layer: dict[int, list[int]] = {}
    for layer, head in heads:
        if not (0 <= layer < shape.layers and 0 <= head < shape.heads):
            raise ValueError(f"`heads` must lie in {shape.layers} layers x {shape.heads} heads, got ({layer}, {head})")
        by_layer.setdefault(layer, []).append(head)
    modules: list[Any] = list(attention_modules(model))
    handles = [
        modules[layer].o_proj.register_forward_pre_hook(_silence(masked, shape.heads))
        for layer, masked in by_layer.items()
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _silence(masked: list[int], heads: int) -> Callable[..., tuple[Tensor, ...]]:
    """Make a hook that zeroes the masked heads' parts of [batch, token, head * dim]."""

    def hook(_module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        parts = args[0].unflatten(-1, (heads, -1)).clone()
        parts[..., masked, :] = 0
        return (parts.flatten(-2), *args[1:])

    return hook
