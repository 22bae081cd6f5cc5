"""RaggedCache: a transformers cache of ragged layers, with its bytes and its file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from headscope.cache.layer import RaggedLayer
from headscope.cache.segments import Segments
from headscope.cache.tokens import Tokens

FORMAT = "headscope.cache/1"


class RaggedCache(Cache):
    """Give it as `cache=` (`past_key_values=` before transformers 5.24) inside `hs.compress`, over several turns.

    `get_seq_length()` is the logical length: tokens seen, kept or not. Any other empty cache that grows will do as
    well; `RaggedCache.of` then gives its bytes.
    """

    layers: list[Any]  # of RaggedLayer; none before the first token

    def __init__(self, layers: Sequence[RaggedLayer] = ()) -> None:
        super().__init__(layers=list(layers))

    @classmethod
    def of(cls, cache: Cache) -> RaggedCache:
        """Give the cache that a compressed `generate` has filled as a RaggedCache; both share their layers."""
        if not all(isinstance(layer, RaggedLayer) for layer in cache.layers):
            raise ValueError("`cache` must have been filled inside `hs.compress`, got one with other layers")
        ragged = cls()
        ragged.layers = cache.layers
        return ragged

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any) -> Any:
        """Take new keys and values of a layer."""
        if layer_idx >= len(self.layers):
            raise ValueError("a ragged cache can be used only inside `hs.compress`; enter it first")
        return super().update(key_states, value_states, layer_idx, *args, **kwargs)

    @property
    def kv_bytes(self) -> int:
        """Bytes of keys and values, slack included, as allocated."""
        return sum(layer.kv_bytes for layer in self.layers)

    @property
    def dense_bytes(self) -> int:
        """Bytes that a full cache of the same tokens would take."""
        return sum(_dense_bytes(layer) for layer in self.layers)

    @property
    def lengths(self) -> list[Tensor]:
        """Tokens that each segment of each layer holds, layer by layer: int64 [row, kv] on the CPU."""
        return [layer.segments.lengths.cpu().long() for layer in self.layers if layer.compressed]

    def reserve(self, tokens: int) -> None:
        """Make room for so many more tokens now, so that no step moves the buffers."""
        for layer in self.layers:
            layer.reserve(tokens)

    def state_dict(self) -> dict[str, Any]:
        """Give everything the cache holds, in plain numbers and tensors, none of them copied."""
        return {"format": FORMAT, "layers": [_state(layer) for layer in self.layers]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave, in place of what the cache holds."""
        if not isinstance(state, Mapping) or state.get("format") != FORMAT:
            raise ValueError(f"`state` must be a ragged cache's ({FORMAT}), got another")
        self.layers[:] = [_layer(each) for each in state["layers"]]

    def save(self, path: str | Path) -> None:
        """Write the cache to a file."""
        torch.save(self.state_dict(), path)

    @classmethod
    def load(cls, path: str | Path, device: str | torch.device | None = None) -> RaggedCache:
        """Read a cache file. device: where to put it; None: where it was."""
        if not Path(path).is_file():
            raise FileNotFoundError(f"`path` must be a cache file, got {str(path)!r}, which does not exist")
        cache = cls()
        cache.load_state_dict(torch.load(path, map_location=device, weights_only=True))
        return cache


PARTS: dict[str, Any] = {"segments": Segments, "tokens": Tokens}
PLAIN = ("waiting", "queries", "dense_copy", "visual", "rope_deltas", "is_initialized")


def _state(layer: RaggedLayer) -> dict[str, Any]:
    parts = {name: None if (part := getattr(layer, name)) is None else dict(vars(part)) for name in PARTS}
    return {"sliding_window": layer.sliding_window} | parts | {name: getattr(layer, name) for name in PLAIN}


def _layer(state: Mapping[str, Any]) -> RaggedLayer:
    layer = RaggedLayer(state["sliding_window"])
    for name, kind in PARTS.items():
        setattr(layer, name, None if state[name] is None else kind(**state[name]))
    for name in PLAIN:
        setattr(layer, name, state[name])
    return layer


def _dense_bytes(layer: RaggedLayer) -> int:
    """Count a full layer's bytes: a sliding window holds one token less than it sees."""
    if layer.segments is None:
        return layer.kv_bytes
    rows, kvs = layer.segments.lengths.shape
    key, value = layer.segments.key, layer.segments.value
    tokens = layer.get_seq_length()
    if layer.sliding_window is not None:
        tokens = min(tokens, layer.sliding_window - 1)
    return rows * kvs * tokens * (key.shape[1] * key.itemsize + value.shape[1] * value.itemsize)
