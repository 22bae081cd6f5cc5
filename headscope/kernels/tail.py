"""Tail: the last tokens of one set of segments put in place of the last tokens of another, as they are."""

from __future__ import annotations

from typing import no_type_check

import torch

from headscope.kernels.backend import await_previous, early, jit, on_triton, overlaps, power_of_2, tl
from headscope.kernels.segments import check_segments

TILE_NUMBERS = 2048  # of one tensor that a program holds at a time

Held = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def reference(source: Held, target: Held, new: int) -> None:
    """Copy with plain PyTorch: the oracle, and the way for CPUs. See `copy_tail`."""
    place = torch.arange(new, device=source[0].device)
    taken, put = ((starts + lengths - new)[..., None] + place for _, _, starts, lengths in (source, target))
    for mine, theirs in zip(target[:2], source[:2], strict=True):
        mine[put] = theirs[taken]


@jit
@no_type_check
def tail_kernel(
    key,
    value,
    starts,
    lengths,
    to_key,
    to_value,
    to_starts,
    to_lengths,
    new,
    DIM: tl.constexpr,
    DIMS: tl.constexpr,
    TILE: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """Copy the tail of one segment."""
    await_previous(OVERLAP)
    segment = tl.program_id(0)
    taken = tl.load(starts + segment) + tl.load(lengths + segment) - new
    put = tl.load(to_starts + segment) + tl.load(to_lengths + segment) - new
    dim = tl.arange(0, DIMS)
    for first in range(0, new, TILE):
        token = first + tl.arange(0, TILE).to(tl.int64)
        mask = (token < new)[:, None] & (dim < DIM)[None, :]
        source = (taken + token)[:, None] * DIM + dim[None, :]
        target = (put + token)[:, None] * DIM + dim[None, :]
        tl.store(to_key + target, tl.load(key + source, mask=mask), mask=mask)
        tl.store(to_value + target, tl.load(value + source, mask=mask), mask=mask)


def launch(source: Held, target: Held, new: int) -> None:
    """Run the kernel. See `copy_tail`."""
    dim, overlap = source[0].shape[1], overlaps(source[0].device)
    dims = power_of_2(dim)
    with torch.cuda.device_of(source[0]):
        tail_kernel[(source[3].numel(),)](
            *source,
            *target,
            new,
            DIM=dim,
            DIMS=dims,
            TILE=min(power_of_2(new), max(1, TILE_NUMBERS // dims)),
            OVERLAP=overlap,
            num_warps=4,
            **early(overlap),
        )


def copy_tail(source: Held, target: Held, new: int) -> None:
    """Put the last `new` tokens of each source segment in place of those of the target segment with its number.

    source, target: (key, value, starts, lengths), see `headscope.kernels.segments`, of one dtype and dim, with as many
    segments. That each segment has `new` tokens is its owner's to know: checking would wait for the device.
    """
    check_segments(*source)
    check_segments(*target)
    if source[3].shape != target[3].shape or source[0].shape[1] != target[0].shape[1]:
        raise ValueError(
            f"`target` must have the source's segments {list(source[3].shape)} and dim {source[0].shape[1]}, got "
            f"{list(target[3].shape)} and {target[0].shape[1]}"
        )
    if source[0].dtype != target[0].dtype:
        raise ValueError(f"`target` must have the source's dtype {source[0].dtype}, got {target[0].dtype}")
    if on_triton(source[0]):
        launch(source, target, new)
    else:
        reference(source, target, new)
