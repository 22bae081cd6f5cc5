"""Gather: pack the kept keys and values of a dense prompt into ragged segments, exactly."""

from __future__ import annotations

from typing import no_type_check

import torch

from headscope.kernels.backend import jit, on_triton, power_of_2, tl
from headscope.kernels.segments import check_segments, check_tokens, dense_rows, segment_slots

TILE = 32  # tokens that a program moves


def reference(
    source_key: torch.Tensor,
    source_value: torch.Tensor,
    positions: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    starts: torch.Tensor,
    lengths: torch.Tensor,
) -> None:
    """Pack with plain PyTorch: the oracle, and the way for CPUs. See `pack`."""
    segment, slots = segment_slots(starts, lengths, positions.numel())
    row, kv = segment // lengths.shape[1], segment % lengths.shape[1]
    key[slots] = source_key[row, kv, positions]
    value[slots] = source_value[row, kv, positions]


@jit
@no_type_check
def pack_kernel(
    source_key,
    source_value,
    positions,
    key,
    value,
    starts,
    ends,
    kept,
    kvs,
    segments,
    key_row,
    key_kv,
    key_token,
    value_row,
    value_kv,
    value_token,
    DIM: tl.constexpr,
    DIMS: tl.constexpr,
    TILE: tl.constexpr,
    STEPS: tl.constexpr,
):
    """Move TILE kept tokens of whatever segments; each token finds its segment by bisection of the segments' ends."""
    at = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    there = at < kept
    low = tl.zeros([TILE], tl.int32)
    high = tl.zeros([TILE], tl.int32) + segments
    for _ in range(STEPS):  # the first segment that ends behind the token
        middle = (low + high) // 2
        behind = tl.load(ends + middle, mask=middle < segments, other=kept) > at
        high = tl.where(behind, middle, high)
        low = tl.where(behind, low, tl.minimum(middle + 1, high))
    segment = tl.where(there, low, 0)
    before = tl.load(ends + segment - 1, mask=segment > 0, other=0)
    slot = tl.load(starts + segment) + at - before
    position = tl.load(positions + at, mask=there, other=0)
    row = (segment // kvs).to(tl.int64)
    kv = (segment % kvs).to(tl.int64)
    dim = tl.arange(0, DIMS)
    mask = there[:, None] & (dim < DIM)[None, :]
    to = slot[:, None] * DIM + dim[None, :]
    from_key = (row * key_row + kv * key_kv + position * key_token)[:, None] + dim[None, :]
    from_value = (row * value_row + kv * value_kv + position * value_token)[:, None] + dim[None, :]
    tl.store(key + to, tl.load(source_key + from_key, mask=mask), mask=mask)
    tl.store(value + to, tl.load(source_value + from_value, mask=mask), mask=mask)


def launch(
    source_key: torch.Tensor,
    source_value: torch.Tensor,
    positions: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    starts: torch.Tensor,
    lengths: torch.Tensor,
) -> None:
    """Run the kernel. See `pack`."""
    kept, segments, dim = positions.numel(), lengths.numel(), key.shape[1]
    if not kept:
        return
    with torch.cuda.device_of(key):
        pack_kernel[(-(-kept // TILE),)](
            source_key,
            source_value,
            positions,
            key,
            value,
            starts,
            lengths.flatten().cumsum(0, dtype=torch.int64),
            kept,
            lengths.shape[1],
            segments,
            *source_key.stride()[:3],
            *source_value.stride()[:3],
            DIM=dim,
            DIMS=power_of_2(dim),
            TILE=TILE,
            STEPS=segments.bit_length(),
            num_warps=4,
        )


def pack(
    source_key: torch.Tensor,
    source_value: torch.Tensor,
    positions: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    starts: torch.Tensor,
    lengths: torch.Tensor,
) -> None:
    """Copy the kept tokens of a dense prompt to the starts of their segments.

    source_key, source_value: [row, kv, token, dim], any strides. positions: int64 [kept], the tokens to keep, segment
    by segment, `lengths` of each. key, value, starts, lengths: the segments, see `headscope.kernels.segments`; key and
    value are written in place. Positions are not checked, since that would wait for the device.
    """
    check_segments(key, value, starts, lengths)
    check_tokens(key, lengths, source_key=source_key, source_value=source_value)
    if positions.ndim != 1 or positions.dtype != torch.int64 or not positions.is_contiguous():
        raise ValueError(
            f"`positions` must be contiguous int64 [kept], got {positions.dtype} {list(positions.shape)}; flatten it"
        )
    if on_triton(key):
        launch(dense_rows(source_key), dense_rows(source_value), positions, key, value, starts, lengths)
    else:
        reference(source_key, source_value, positions, key, value, starts, lengths)
