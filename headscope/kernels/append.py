"""Append: write new keys and values behind the segments' tokens, in place, and lengthen the segments."""

from __future__ import annotations

from typing import no_type_check

import torch

from headscope.kernels.backend import jit, on_triton, power_of_2, tl
from headscope.kernels.segments import check_segments, check_tokens, dense_rows

TILE_NUMBERS = 2048  # of one tensor that a program holds at a time


def reference(
    key: torch.Tensor,
    value: torch.Tensor,
    starts: torch.Tensor,
    lengths: torch.Tensor,
    new_key: torch.Tensor,
    new_value: torch.Tensor,
) -> None:
    """Append with plain PyTorch: the oracle, and the way for CPUs. See `append`."""
    new = new_key.shape[2]
    slots = (starts + lengths)[..., None] + torch.arange(new, device=key.device)
    key[slots] = new_key
    value[slots] = new_value
    lengths += new


@jit
@no_type_check
def append_kernel(
    key,
    value,
    starts,
    lengths,
    new_key,
    new_value,
    new,
    kvs,
    key_row,
    key_kv,
    key_token,
    value_row,
    value_kv,
    value_token,
    DIM: tl.constexpr,
    DIMS: tl.constexpr,
    TILE: tl.constexpr,
):
    """Append to one segment."""
    segment = tl.program_id(0)
    length = tl.load(lengths + segment)
    slot = tl.load(starts + segment) + length
    row = (segment // kvs).to(tl.int64)
    kv = (segment % kvs).to(tl.int64)
    dim = tl.arange(0, DIMS)
    for first in range(0, new, TILE):
        token = first + tl.arange(0, TILE).to(tl.int64)
        mask = (token < new)[:, None] & (dim < DIM)[None, :]
        to = (slot + token)[:, None] * DIM + dim[None, :]
        from_key = (row * key_row + kv * key_kv + token * key_token)[:, None] + dim[None, :]
        from_value = (row * value_row + kv * value_kv + token * value_token)[:, None] + dim[None, :]
        tl.store(key + to, tl.load(new_key + from_key, mask=mask), mask=mask)
        tl.store(value + to, tl.load(new_value + from_value, mask=mask), mask=mask)
    tl.debug_barrier()  # every warp has read the length before one of them changes it
    tl.store(lengths + segment, length + new)


def launch(
    key: torch.Tensor,
    value: torch.Tensor,
    starts: torch.Tensor,
    lengths: torch.Tensor,
    new_key: torch.Tensor,
    new_value: torch.Tensor,
) -> None:
    """Run the kernel. See `append`."""
    new, dim = new_key.shape[2], key.shape[1]
    dims = power_of_2(dim)
    with torch.cuda.device_of(key):
        append_kernel[(lengths.numel(),)](
            key,
            value,
            starts,
            lengths,
            new_key,
            new_value,
            new,
            lengths.shape[1],
            *new_key.stride()[:3],
            *new_value.stride()[:3],
            DIM=dim,
            DIMS=dims,
            TILE=min(power_of_2(new), max(1, TILE_NUMBERS // dims)),
            num_warps=1 if new == 1 else 4,
        )


def append(
    key: torch.Tensor,
    value: torch.Tensor,
    starts: torch.Tensor,
    lengths: torch.Tensor,
    new_key: torch.Tensor,
    new_value: torch.Tensor,
) -> None:
    """Append new tokens to every segment; key, value and lengths change in place.

    key, value, starts, lengths: the segments, see `headscope.kernels.segments`. new_key, new_value:
    [row, kv, new, dim], any strides. That every segment has `new` slots of slack is its owner's to know: checking would
    wait for the device.
    """
    check_segments(key, value, starts, lengths)
    check_tokens(key, lengths, new_key=new_key, new_value=new_value)
    if on_triton(key):
        launch(key, value, starts, lengths, dense_rows(new_key), dense_rows(new_value))
    else:
        reference(key, value, starts, lengths, new_key, new_value)
