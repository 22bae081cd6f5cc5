"""Steps of a loaded model on the caches of its own prefill, timed with a part of the activations and of the cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from headscope.accounting.crossover import Keep
from headscope.bench.activations import kept_shares
from headscope.bench.blocks import rotated
from headscope.bench.cells import Row
from headscope.bench.step import ROOM, Rig
from headscope.bench.timer import Timer
from headscope.cache.segments import Segments
from headscope.evaluate.single import cache_name
from headscope.fused import fuse
from headscope.sparsity import Thresholds, sparsify

SINKS = 4


@dataclass(frozen=True, eq=False)
class Loaded:
    """A model with the dense cache of a text: key and value, [1, kv, token, dim], of each layer."""

    rig: Rig
    cache: list[tuple[Tensor, Tensor]]
    context: int

    @classmethod
    @torch.no_grad()
    def of(cls, model: Any, ids: Sequence[int]) -> Loaded:
        """Run a text through a model, and keep its cache. Raises ValueError for a stack that is not Llama-like."""
        cache: Any = DynamicCache()
        given = torch.tensor([list(ids)], device=model.device)
        model(input_ids=given, use_cache=True, logits_to_keep=1, **{cache_name(model): cache})
        return cls(Rig.of(model), [(layer.keys, layer.values) for layer in cache.layers], len(ids))

    def segments(self, keep_kv: float) -> list[Segments]:
        """Keep a part of the cache: the first tokens and the last ones. Which they are does not change the time."""
        count = max(1, round(keep_kv * self.context))
        sinks = min(SINKS, count)
        places = torch.cat([torch.arange(sinks), torch.arange(self.context - count + sinks, self.context)])
        return [_packed(key, value, places) for key, value in self.cache]

    def time(self, keep: Keep, thresholds: Mapping[float, Thresholds], timer: Timer, repeats: int) -> Row:
        """Time a greedy step behind the text; with sparse activations also say which part of them was active."""
        model, layers = self.rig.model, self.segments(keep.kv)
        with sparsify(model, thresholds[keep.act]) if keep.act < 1 else nullcontext():
            step = fuse(model)
            assert step is not None  # Rig.of has found the stack
            median, spread = timer(replace(self.rig, step=step), layers, self.context, None, repeats)
            row: Row = {"ms_per_token": round(median, 5), "spread_ms": round(spread, 5)}
            return row | ({"kept": kept_shares(step, layers, self.context)} if keep.act < 1 else {})


@dataclass(frozen=True, eq=False)
class LoadedSteps:
    """Steps of a loaded model, timed here. thresholds: by keep ratio."""

    loaded: Loaded
    thresholds: Mapping[float, Thresholds]
    timer: Timer
    repeats: int = 15

    @property
    def context(self) -> int:
        """Tokens of the cache that steps are timed on."""
        return self.loaded.context

    def screen(self, keep: Keep) -> Row:
        """Time a setting's step once."""
        return self.loaded.time(keep, self.thresholds, self.timer, self.repeats)

    def again(self, keeps: Sequence[Keep], blocks: int) -> dict[Keep, list[float]]:
        """Time settings in blocks that each begin with the next one."""
        times: dict[Keep, list[float]] = {keep: [] for keep in keeps}
        for block in range(blocks):
            for keep in rotated(keeps, block):
                times[keep].append(float(self.screen(keep)["ms_per_token"]))
        return times


def _packed(key: Tensor, value: Tensor, places: Tensor) -> Segments:
    kvs = key.shape[1]
    lengths = torch.full((1, kvs), len(places), dtype=torch.int32, device=key.device)
    return Segments.of(key, value, places.to(key.device).repeat(kvs), lengths, ROOM)
