"""Attentions that a step may be timed with: what a speed-up is worth depends on the one that it is compared with."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from headscope.bench.step import fa3, sdpa
from headscope.cache.segments import Segments
from headscope.fused.step import Attend, attend


def masked(query: Tensor, segments: Segments, scaling: float) -> Tensor:
    """Attend as transformers' eager attention does: keys and values repeated for every head, a mask, three passes."""
    key, value = _held(segments)
    heads = query.shape[1]
    key, value = (part.repeat_interleave(heads // part.shape[1], dim=1) for part in (key, value))
    mask = query.new_zeros(query.shape[0], 1, query.shape[2], key.shape[2])
    scores = query @ key.transpose(2, 3) * scaling + mask
    output = torch.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype) @ value
    return output.transpose(1, 2)


def fused(query: Tensor, segments: Segments, scaling: float) -> Tensor:
    """Attend in one kernel that does not split the keys: PyTorch's memory-efficient attention, one block a head.

    The heads of a group share their keys and values without a copy. One new token a row.
    """
    key, value = _held(segments)
    rows, kvs, tokens, dim = key.shape
    group = query.shape[1] // kvs
    key, value = (part.reshape(rows * kvs, 1, tokens, dim).expand(-1, group, -1, -1) for part in (key, value))
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        output = scaled_dot_product_attention(query.reshape(rows * kvs, group, 1, dim), key, value, scale=scaling)
    return output.reshape(rows, kvs * group, 1, dim).transpose(1, 2)


def _held(segments: Segments) -> tuple[Tensor, Tensor]:
    """View segments of one length in equal strides as dense keys and values, [row, kv, token, dim]."""
    rows, kvs = segments.lengths.shape
    key, value = (part.view(rows, kvs, -1, part.shape[1]) for part in (segments.key, segments.value))
    held = key.shape[2] - segments.room
    return key[:, :, :held], value[:, :, :held]


ATTENTIONS: dict[str, Attend] = {"split": attend, "sdpa": sdpa, "fa3": fa3, "fused": fused, "masked": masked}
