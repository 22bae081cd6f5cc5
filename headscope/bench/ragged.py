"""Ragged segments to measure decode attention on: shapes, lengths, inputs, and what attention gives on them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from headscope.bench.clock import DEVICE
from headscope.budget import allocate
from headscope.kernels.decode import reference
from headscope.resources import find
from headscope.scores import HeadScores

Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, float]


@dataclass(frozen=True)
class Cell:
    """A shape: rows of a batch, KV heads, query heads of each, head dim, mean tokens of a segment."""

    rows: int
    kvs: int
    group: int
    dim: int
    length: int

    @property
    def name(self) -> list[int]:
        return [self.rows, self.kvs, self.group, self.dim, self.length]


@dataclass(frozen=True)
class Case:
    """Inputs of decode attention."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    starts: torch.Tensor
    lengths: torch.Tensor

    @property
    def inputs(self) -> Inputs:
        return self.query, self.key, self.value, self.starts, self.lengths, self.query.shape[2] ** -0.5

    @property
    def kv_bytes(self) -> int:
        return 2 * int(self.lengths.sum()) * self.key.shape[1] * self.key.element_size()


def equal_lengths(cell: Cell) -> list[int]:
    return [cell.length] * (cell.rows * cell.kvs)


def ragged_lengths(cell: Cell) -> list[int]:
    """Give each segment 64 tokens and a share of the rest in proportion to U^4."""
    segments = cell.rows * cell.kvs
    weight = torch.rand(segments, generator=torch.Generator().manual_seed(0)) ** 4
    return [int(share) for share in 64 + weight / weight.sum() * segments * (cell.length - 64)]


def budget_lengths(cell: Cell) -> list[int]:
    """Give the kept tokens of a SparseMM budget of the bundled model, its layers as rows."""
    scores = HeadScores.load(find("scores", "reader-22m.json"))
    return allocate(scores, per_head=cell.length, rule="sparsemm", window=32, ratio=0.1).kept.flatten().tolist()


def make(cell: Cell, lengths: list[int], dtype: torch.dtype = torch.bfloat16, slack: int = 0, seed: int = 0) -> Case:
    """Draw the inputs; slack slots hold NaN."""
    torch.manual_seed(seed)
    count = torch.tensor(lengths, device=DEVICE, dtype=torch.int32).view(cell.rows, cell.kvs)
    capacity = (count + slack).flatten().long()
    starts = (capacity.cumsum(0) - capacity).view(cell.rows, cell.kvs)
    slots = sum(lengths) + slack * len(lengths)
    key, value = (torch.randn(slots, cell.dim, device=DEVICE, dtype=dtype) for _ in range(2))
    if slack:
        for start, length in zip(starts.flatten().tolist(), lengths, strict=True):
            key[start + length : start + length + slack] = torch.nan
            value[start + length : start + length + slack] = torch.nan
    query = torch.randn(cell.rows, cell.kvs * cell.group, cell.dim, device=DEVICE, dtype=dtype)
    return Case(query, key, value, starts, count)


def oracle(case: Case) -> tuple[torch.Tensor, torch.Tensor]:
    """Give the reference in fp32, one segment at a time: the padded one would not fit for long segments."""
    group = case.query.shape[1] // case.lengths.shape[1]
    query = case.query.float().flatten(0, 1).unflatten(0, (-1, group))
    output, lse = torch.empty_like(query), query.new_empty(query.shape[:2])
    for index, (start, length) in enumerate(zip(case.starts.flatten(), case.lengths.flatten(), strict=True)):
        own = slice(int(start), int(start) + int(length))
        whole = torch.zeros(1, 1, dtype=torch.int64, device=DEVICE), length.view(1, 1)
        found = reference(query[index][None], case.key[own].float(), case.value[own].float(), *whole, case.inputs[-1])
        output[index], lse[index] = found[0][0], found[1][0]
    return output.view(case.query.shape), lse.view(case.query.shape[:2])


def pytorch(case: Case) -> torch.Tensor:
    """Give PyTorch's own attention in the same dtype, one segment at a time: the honest error."""
    group = case.query.shape[1] // case.lengths.shape[1]
    query = case.query.flatten(0, 1).unflatten(0, (-1, group))
    output = torch.zeros_like(query)
    for index, (start, length) in enumerate(zip(case.starts.flatten(), case.lengths.flatten(), strict=True)):
        own = slice(int(start), int(start) + int(length))
        if length:
            keys, values = (part[own].expand(1, 1, -1, -1) for part in (case.key, case.value))
            output[index] = F.scaled_dot_product_attention(query[index][None, :, None], keys, values, enable_gqa=True)[
                0, :, 0
            ]
    return output.view(case.query.shape)
