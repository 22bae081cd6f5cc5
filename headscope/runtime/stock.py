"""The stock forward: any supported model's own forward, its attention on segments."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache, CacheLayerMixin

from headscope.attach.entry import CACHE_NAMES
from headscope.cache.segments import Segments
from headscope.families import attention_modules, language_model
from headscope.kernels import ragged_decode, ragged_verify
from headscope.runtime.window import WindowedSegments

NAME = "headscope_segments"  # of the attention, in transformers


class StockForward:
    """See `Forward`. The model is as it was after each call."""

    def __init__(self, model: nn.Module) -> None:
        self.model: Any = model
        self.stack: Any = language_model(model)
        self.layers = len(attention_modules(model))
        parameters = inspect.signature(self.stack.forward).parameters
        self.cache_name = next(name for name in CACHE_NAMES if name in parameters)

    def __call__(self, ids: Tensor, positions: Tensor, layers: Sequence[Segments]) -> Tensor:
        """Run the step."""
        return self._run(ids, positions, [StepLayer(segments) for segments in layers])

    def observe(self, ids: Tensor, positions: Tensor, layers: Sequence[Segments]) -> tuple[Tensor, list[Tensor]]:
        """Run the step; give each layer's queries as well: [row, head, new, dim]."""
        steps = [StepLayer(segments) for segments in layers]
        logits = self._run(ids, positions, steps)
        return logits, [step.query for step in steps if step.query is not None]

    @torch.no_grad()
    def _run(self, ids: Tensor, positions: Tensor, steps: list[StepLayer]) -> Tensor:
        given = {self.cache_name: Cache(layers=list(steps)), "use_cache": True, "return_dict": True}
        with _own_attention(self.stack.config):
            if len(steps) == self.layers:
                return self.model(input_ids=ids, position_ids=positions, **given).logits
            with _end_before(self.stack.layers[len(steps)]) as ended:
                self.model(input_ids=ids, position_ids=positions, **given)
        return self.model.lm_head(self.stack.norm(ended[0]))


class StepLayer(CacheLayerMixin):
    """A layer of one step's cache: takes new keys and values, which the attention then finds in it."""

    is_sliding = False
    is_croppable = False

    def __init__(self, segments: Segments) -> None:
        super().__init__()
        self.segments = segments
        self.query: Tensor | None = None

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to do."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """Append new keys and values [row, kv, new, dim]."""
        self.segments.enter()
        self.segments.append(key_states, value_states)
        return self, self

    def attend(self, query: Tensor, scaling: float) -> Tensor:
        """Attend: [row, head, new, dim] -> [row, new, head, dim]."""
        self.query = query
        output = self._attend(query, self.segments, scaling)
        self.segments.leave(query.shape[2])
        return output

    def _attend(self, query: Tensor, held: Segments, scaling: float) -> Tensor:
        if isinstance(held, WindowedSegments):
            return held.attend(query, scaling)
        flat = held.key, held.value, held.starts, held.lengths
        if query.shape[2] == 1:
            return ragged_decode(query[:, :, 0], *flat, scaling)[0][:, None]
        return ragged_verify(query, *flat, scaling)[0].transpose(1, 2)

    def get_seq_length(self) -> int:
        """Positions are given, and no mask is made: nothing asks for the length."""
        return 0

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Give (keys, offset) of the mask that is not made."""
        return query_length, 0

    def get_max_length(self) -> int:
        """There is no maximum."""
        return -1


def stock(model: nn.Module) -> StockForward:
    """Give the stock forward of a model. Raises ValueError where its decoder layers cannot be found."""
    return StockForward(model)


class _Ended(Exception):
    """Ends a forward pass after the layers that were wanted."""


@contextmanager
def _end_before(layer: nn.Module) -> Iterator[list[Tensor]]:
    """End the forward pass inside the block before a layer; its hidden states are then in the list."""
    ended: list[Tensor] = []

    def end(_module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        ended.append(args[0] if args else kwargs["hidden_states"])
        raise _Ended

    handle = layer.register_forward_pre_hook(end, with_kwargs=True)
    try:
        yield ended
    except _Ended:
        pass
    finally:
        handle.remove()


@contextmanager
def _own_attention(config: Any) -> Iterator[None]:
    """Let a decoder stack attend on segments inside the block."""
    _register()
    before = config._attn_implementation
    config._attn_implementation = NAME
    try:
        yield
    finally:
        config._attn_implementation = before


def _register() -> None:
    """Make the attention known to transformers; each query sees what its segment holds, so there is no mask."""
    from transformers import AttentionInterface, AttentionMaskInterface

    if NAME not in AttentionInterface():
        AttentionInterface.register(NAME, _attend)
        AttentionMaskInterface.register(NAME, _no_mask)


def _attend(module: nn.Module, query: Tensor, key: Any, value: Any, attention_mask: Any, **kwargs: Any) -> Any:
    return key.attend(query, kwargs.get("scaling") or query.shape[-1] ** -0.5), None


def _no_mask(*args: Any, **kwargs: Any) -> None:
    return None
