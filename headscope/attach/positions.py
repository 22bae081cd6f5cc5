"""Positions: M-RoPE's offset of a sequence comes from its cache, not from whatever ran on the model before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from headscope.attach.entry import find_cache
from headscope.cache import RaggedLayer


def keepers(model: nn.Module) -> list[Any]:
    """Give the modules that keep `rope_deltas` from one call to the next; most families have none."""
    return [module for module in model.modules() if "rope_deltas" in vars(module)]


def recall(model: nn.Module, cache: Any) -> None:
    """Set the offset that belongs to a cache; none for a cache that is empty."""
    layers = getattr(cache, "layers", None) or [None]
    offset = layers[0].rope_deltas if isinstance(layers[0], RaggedLayer) else None
    for module in keepers(model):
        module.rope_deltas = offset


@contextmanager
def own_positions(model: nn.Module) -> Iterator[None]:
    """Recall the offset before each forward pass inside the block; restore what was there before it."""
    before = [(module, module.rope_deltas) for module in keepers(model)]

    def hook(module: nn.Module, _args: Any, kwargs: dict[str, Any]) -> None:
        recall(module, find_cache(kwargs))

    handles = [module.register_forward_pre_hook(hook, with_kwargs=True) for module, _ in before]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        for module, offset in before:
            module.rope_deltas = offset
