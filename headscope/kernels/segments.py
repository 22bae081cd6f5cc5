"""Segments: where the keys and values of each (row, kv) lie in a layer's flat buffers.

key, value: [slot, dim], contiguous. starts: int64 [row, kv], the first slot of a segment. lengths: int32 [row, kv], its
tokens. Slots behind a segment's length, up to the next segment, are slack, and may hold anything.
"""

from __future__ import annotations

import torch


def check_segments(key: torch.Tensor, value: torch.Tensor, starts: torch.Tensor, lengths: torch.Tensor) -> None:
    """Check what can be checked without waiting for the device: shapes, dtypes and layout; ValueError."""
    if key.ndim != 2 or key.shape != value.shape or key.dtype != value.dtype:
        raise ValueError(
            f"`key` and `value` must be [slot, dim], both of one shape and dtype, got {list(key.shape)} {key.dtype} "
            f"and {list(value.shape)} {value.dtype}"
        )
    if not (key.is_contiguous() and value.is_contiguous()):
        raise ValueError("`key` and `value` must be contiguous, got strided ones; make the buffers with torch.empty")
    if starts.ndim != 2 or starts.shape != lengths.shape or not starts.numel():
        raise ValueError(
            f"`starts` and `lengths` must be [row, kv], both of one shape and not empty, got {list(starts.shape)} and "
            f"{list(lengths.shape)}"
        )
    if starts.dtype != torch.int64 or lengths.dtype != torch.int32:
        raise ValueError(f"`starts` must be int64 and `lengths` int32, got {starts.dtype} and {lengths.dtype}")
    if not (starts.is_contiguous() and lengths.is_contiguous()):
        raise ValueError("`starts` and `lengths` must be contiguous, got strided ones; call .contiguous()")


def segment_slots(starts: torch.Tensor, counts: torch.Tensor, total: int) -> tuple[torch.Tensor, torch.Tensor]:
    """List the slots of all segments one after another: the segment of each, and the slot; int64 [total].

    counts: [row, kv] tokens from each segment's start, `total` of them in all (given, so that nothing waits for the
    device).
    """
    flat = counts.flatten().long()
    order = torch.arange(flat.numel(), device=flat.device)
    segment = torch.repeat_interleave(order, flat, output_size=total)
    within = torch.arange(total, device=flat.device) - (flat.cumsum(0) - flat)[segment]
    return segment, starts.flatten()[segment] + within


def chosen_positions(chosen: torch.Tensor, total: int) -> torch.Tensor:
    """List the chosen tokens of each segment one after another: bool [row, kv, token] -> int64 [total].

    total: how many are chosen in all (given, so that nothing waits for the device).
    """
    flat = chosen.flatten()
    tokens = torch.arange(chosen.shape[2], device=chosen.device).expand(chosen.shape).flatten()
    place = torch.where(flat, flat.cumsum(0) - 1, total)
    return tokens.new_empty(total + 1).scatter_(0, place, tokens)[:total]


def check_tokens(key: torch.Tensor, lengths: torch.Tensor, **given: torch.Tensor) -> None:
    """Check dense keys and values by name: [row, kv, token, dim] in the buffers' dtype; ValueError."""
    for name, dense in given.items():
        if dense.ndim != 4 or dense.shape[:2] != lengths.shape or dense.shape[3] != key.shape[1]:
            raise ValueError(
                f"`{name}` must be [row, kv, token, dim] with (row, kv) {tuple(lengths.shape)} and dim {key.shape[1]}, "
                f"got {list(dense.shape)}"
            )
        if dense.dtype != key.dtype:
            raise ValueError(f"`{name}` must have the buffers' dtype {key.dtype}, got {dense.dtype}; convert it")
    if len({dense.shape[2] for dense in given.values()}) > 1:
        raise ValueError(f"{' and '.join(f'`{name}`' for name in given)} must have the same number of tokens")


def dense_rows(tensor: torch.Tensor) -> torch.Tensor:
    """Give a tensor whose last axis lies together in memory, a copy only if need be."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()
