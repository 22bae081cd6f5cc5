"""The caller's cache: what it holds before a turn, and what plain generation would leave in it afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from headscope.cache import RaggedLayer
from headscope.cache.segments import Segments
from headscope.speculate.state import make_room, rewind

if TYPE_CHECKING:
    from headscope.speculate.prefill import Filled
    from headscope.speculate.rounds import Rounds


@dataclass(frozen=True, eq=False)
class Held:
    """A caller's cache. tokens: its length. cache: None where there was none."""

    cache: Any
    tokens: int

    @classmethod
    def of(cls, cache: Any, name: str) -> Held:
        """Check a cache. Raises ValueError unless it is a plain DynamicCache or none."""
        if cache is None:
            return cls(None, 0)
        kinds = (DynamicLayer, DynamicSlidingWindowLayer)
        plain = isinstance(cache, DynamicCache) and not getattr(cache, "offloading", False)
        if not plain or any(type(layer) not in kinds for layer in cache.layers):
            raise ValueError(
                f"`{name}` must be a DynamicCache that is not offloaded, or left out, to speculate; got "
                f"{type(cache).__name__}"
            )
        return cls(cache, cache.get_seq_length())

    def put_into(self, layers: Sequence[RaggedLayer]) -> None:
        """Let layers that wait for a prompt begin with what the cache holds; what a window has passed is zeros."""
        if not self.tokens:
            return
        for layer, own in zip(layers, self.cache.layers, strict=True):
            passed = self.tokens - own.keys.shape[2]
            dense = own.keys, own.values
            layer.waiting = (pad(dense[0], (0, 0, passed, 0)), pad(dense[1], (0, 0, passed, 0))) if passed else dense
            layer.is_initialized = True

    def fill(self, layers: Sequence[Segments], tokens: int) -> None:
        """Let the cache hold the last `tokens` tokens of every row, padding included, as [row, kv, token, dim]."""
        while len(self.cache.layers) < len(layers):
            self.cache.layers.append(self.cache.layer_class_to_replicate())
        for own, segments in zip(self.cache.layers, layers, strict=True):
            length = tokens
            if isinstance(own, DynamicSlidingWindowLayer):
                own.cumulative_length = tokens
                length = min(tokens, own.sliding_window - 1)
            key, value = dense(segments, length)
            if not own.is_initialized:
                own.lazy_initialization(key, value)
            own.keys, own.values = key, value


def dense(segments: Segments, tokens: int) -> tuple[Tensor, Tensor]:
    """Lay out the last tokens of each segment, on the right: [row, kv, token, dim]; zeros where it has fewer."""
    back = torch.arange(tokens, 0, -1, device=segments.key.device)
    there = back <= segments.lengths[..., None]
    slots = torch.where(there, segments.starts[..., None] + segments.lengths[..., None] - back, 0)
    hidden = ~there[..., None]
    segments.enter()
    found = segments.key[slots].masked_fill(hidden, 0), segments.value[slots].masked_fill(hidden, 0)
    segments.leave(0)
    return found


def hand_back(rounds: Rounds, filled: Filled, held: Held) -> None:
    """Fill the caller's cache as plain generation leaves it: all tokens but the last, padding of ended rows too."""
    state, answer = rounds.state, rounds.stops.length
    surplus = state.lengths - answer
    rewind(state.whole, surplus.clamp_min(0))
    if lacking := max(answer - min(rounds.lengths), 0):
        make_room(state.whole, lacking)
        places = state.lengths[:, None] - 1 + torch.arange(lacking, device=surplus.device)
        places = places.clamp_max(state.ids.shape[1] - 1)
        rounds.forward(state.ids.gather(1, places), state.positions(0, lacking), state.whole)
        rewind(state.whole, lacking + surplus.clamp_max(0))
    held.fill(state.whole, filled.total + answer - 1 - rounds.stops.prompt)
