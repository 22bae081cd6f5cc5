"""One graphed decode step to measure: a model's stack with random weights, and caches of random keys and values."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from headscope.budget import allocate
from headscope.cache.segments import Segments
from headscope.families import Geometry, geometry
from headscope.fused import FusedStep, find_stack
from headscope.fused.graph import Graph
from headscope.fused.step import Attend, attend, tie_lengths
from headscope.scores import HeadScores

ROOM = 64
WINDOW = 32


@dataclass(frozen=True, eq=False)
class Rig:
    """A model to measure. shape: of its decoder. room: slack behind each segment of the caches that it draws."""

    model: Any
    step: FusedStep
    shape: Geometry
    room: int = ROOM

    @classmethod
    def of(cls, model: Any) -> Rig:
        stack = find_stack(model)
        if stack is None:
            raise ValueError("the model's stack must be Llama-like")
        return cls(model, FusedStep(stack), geometry(model.config))

    @property
    def token_bytes(self) -> int:
        """Bytes of one token's keys and values in all layers."""
        shape = self.shape
        return 2 * shape.layers * shape.kv_heads * shape.head_dim * self.step.stack.embedding.element_size()

    def dense(self, rows: int, context: int) -> list[Segments]:
        """Draw a full cache."""
        return self._drawn(torch.full((self.shape.layers, rows, self.shape.kv_heads), context))

    def compressed(self, rows: int, context: int, per_head: int, rule: str = "sparsemm") -> list[Segments]:
        """Draw a cache with a budget for uneven scores (U^4, seed 0)."""
        uneven = torch.rand(self.shape.layers, self.shape.kv_heads, generator=torch.Generator().manual_seed(0)) ** 4
        scores = HeadScores.from_values(uneven, kv_heads=self.shape.kv_heads)
        budget = allocate(scores, per_head=per_head, rule=rule, window=WINDOW, prompt=context)
        return self._drawn(budget.kept[:, None].expand(-1, rows, -1))

    def _drawn(self, lengths: Tensor) -> list[Segments]:
        torch.manual_seed(0)
        return [self._layer(own.contiguous()) for own in lengths]

    def _layer(self, lengths: Tensor) -> Segments:
        ends = (lengths.flatten() + self.room).cumsum(0)
        starts = (ends - lengths.flatten() - self.room).view(lengths.shape)
        like, dim = self.step.stack.embedding, self.shape.head_dim
        key, value = (like.new_empty(int(ends[-1]), dim).normal_() for _ in "kv")
        return Segments(key, value, starts.to(like.device), lengths.to(like.device, torch.int32), self.room)


def kv_bytes(layers: list[Segments]) -> int:
    """Count the bytes of keys and values that a step reads."""
    return sum(int(each.lengths.sum()) * (each.key[0].nbytes + each.value[0].nbytes) for each in layers)


def sdpa(query: Tensor, segments: Segments, scaling: float) -> Tensor:
    """Attend with PyTorch's own attention, grouped heads as they are, on segments of one length in equal strides."""
    rows, kvs = segments.lengths.shape
    key, value = (part.view(rows, kvs, -1, part.shape[1]) for part in (segments.key, segments.value))
    held = key.shape[2] - segments.room
    output = scaled_dot_product_attention(
        query, key[:, :, :held], value[:, :, :held], scale=scaling, enable_gqa=key.shape[1] != query.shape[1]
    )
    return output.transpose(1, 2)


def fa3(query: Tensor, segments: Segments, scaling: float) -> Tensor:
    """Attend with FlashAttention-3, each (row, KV head) a sequence of its own, on segments in equal strides."""
    from fa3_fwd_interface import flash_attn_with_kvcache

    segment_count, group = segments.lengths.numel(), query.shape[1] // segments.lengths.shape[1]
    key, value = (part.view(segment_count, -1, 1, part.shape[1]) for part in (segments.key, segments.value))
    new = query.shape[2]
    grouped = query.reshape(segment_count, group, new, -1).transpose(1, 2)
    output = flash_attn_with_kvcache(
        grouped.contiguous(),
        key,
        value,
        cache_seqlens=segments.lengths.flatten(),
        softmax_scale=scaling,
        causal=new > 1,
    )
    return output.transpose(1, 2).reshape(query.shape).transpose(1, 2)


def dense_attentions() -> dict[str, Attend]:
    """Give the attentions that a full cache may be measured with; FlashAttention-3 where it is installed."""
    found: dict[str, Attend] = {"headscope": attend, "sdpa": sdpa}
    try:
        import fa3_fwd_interface  # noqa: F401
    except ImportError:
        return found
    return found | {"fa3": fa3}


def greedy(step: FusedStep, layers: list[Segments], rows: int, context: int) -> Callable[[], Tensor]:
    """Give the work of one greedy step: each run feeds the next one."""
    ids = torch.ones(rows, 1, dtype=torch.int64, device=layers[0].key.device)
    positions = torch.full_like(ids, context)

    def work() -> Tensor:
        logits = step(ids, positions, layers)
        ids.copy_(logits[:, -1:].argmax(-1))
        positions.add_(1)
        return logits

    return work


def step_ms(
    rig: Rig, layers: list[Segments], context: int, attention: Attend | None = None, repeats: int = 15
) -> tuple[float, float]:
    """Time a graphed greedy step: the median and the spread (highest less lowest) of its replays, in ms."""
    rows = layers[0].lengths.shape[0]
    tie_lengths(layers)
    step = rig.step if attention is None else replace(rig.step, attend=attention)
    graph = Graph(greedy(step, layers, rows, context), layers, 1)
    for _ in range(3):
        graph()
    return replay_ms(graph, repeats)


def replay_ms(graph: Callable[[], Any], repeats: int) -> tuple[float, float]:
    """Time replays one after another: the median and the spread, in ms. A step's weights are more than the L2 holds."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    events[0].record()
    for event in events[1:]:
        graph()
        event.record()
    torch.cuda.synchronize()
    times = [before.elapsed_time(after) for before, after in itertools.pairwise(events)]
    return statistics.median(times), max(times) - min(times)
