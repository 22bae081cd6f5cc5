"""Ragged segments to test kernels on, and PyTorch's own attention over them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F


@dataclass(frozen=True)
class Ragged:
    """One layer's segments. Slack holds NaN: a kernel that reads it shows."""

    key: torch.Tensor
    value: torch.Tensor
    starts: torch.Tensor
    lengths: torch.Tensor

    @property
    def segments(self) -> list[slice]:
        return [
            slice(start, start + length)
            for start, length in zip(self.starts.flatten().tolist(), self.lengths.flatten().tolist(), strict=True)
        ]


def ragged(lengths: list[list[int]], dim: int, dtype: torch.dtype, device: str = "cpu", slack: int = 3) -> Ragged:
    """Draw segments of these lengths [row][kv], in reverse order in the buffers, each with some slack behind."""
    generator = torch.Generator().manual_seed(0)
    count = torch.tensor(lengths, dtype=torch.int32)
    capacity = (count + slack).flatten().long().flip(0)
    starts = (capacity.cumsum(0) - capacity).flip(0).view(count.shape)
    key, value = (torch.full((int(capacity.sum()), dim), torch.nan, dtype=dtype) for _ in "kv")
    found = Ragged(key, value, starts, count)
    for own in found.segments:
        for buffer in (key, value):
            buffer[own] = torch.randn(own.stop - own.start, dim, generator=generator).to(dtype)
    return Ragged(*(tensor.to(device) for tensor in vars(found).values()))


def normal(*shape: int, dtype: torch.dtype, device: str = "cpu", seed: int = 1) -> torch.Tensor:
    """Draw from the normal distribution."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(device, dtype)


def pytorch(query: torch.Tensor, given: Ragged, scaling: float, dtype: torch.dtype) -> torch.Tensor:
    """Attend with PyTorch in a dtype, one segment at a time; zeros for an empty one."""
    row, head, dim = query.shape
    queries = query.to(dtype).view(-1, 1, head // given.lengths.shape[1], dim)
    output = torch.zeros_like(queries)
    for index, own in enumerate(given.segments):
        if own.stop > own.start:
            keys, values = (buffer[own].to(dtype)[None] for buffer in (given.key, given.value))
            output[index] = F.scaled_dot_product_attention(queries[index], keys, values, scale=scaling)
    return output.view(row, head, dim)
