"""Shares: equal runs of all segments' key tiles, one a program, and their partial results combined.

Stream-K's shares (Osama et al., 2023) over Flash-Decoding's split of keys (Dao et al., 2023): the segments' key tiles
stand in a row, and every program takes as many of them, however unequal the segments are. Shares are found from the
lengths on the device; nothing waits for the host, and a CUDA graph may replay with other lengths.
"""

from __future__ import annotations

from typing import no_type_check

import torch

from headscope.kernels.backend import (
    INTERPRETED,
    await_previous,
    early,
    jit,
    multiprocessors,
    narrow,
    overlaps,
    power_of_2,
    tl,
)

LOG2_E = 1.4426950408889634
BLOCK = 1024  # most lengths that a program reads at a time
FEW = 512  # numbers of the output per multiprocessor; for fewer, programs that combine parts are cut smaller


@jit
@no_type_check
def count_tiles(lengths, segments, TILE: tl.constexpr, BLOCK: tl.constexpr):
    """Count the key tiles of the first so many segments."""
    tiles = tl.zeros([BLOCK], tl.int32)
    for first in range(0, segments, BLOCK):
        at = first + tl.arange(0, BLOCK)
        tiles += tl.cdiv(tl.load(lengths + at, mask=at < segments, other=0), TILE)
    return tl.sum(tiles)


@jit
@no_type_check
def count_before(lengths, segment, segments, TILE: tl.constexpr, BLOCK: tl.constexpr):
    """Count the key tiles of the segments before one, and those of all segments."""
    before = tl.zeros([BLOCK], tl.int32)
    total = tl.zeros([BLOCK], tl.int32)
    for first in range(0, segments, BLOCK):
        at = first + tl.arange(0, BLOCK)
        tiles = tl.cdiv(tl.load(lengths + at, mask=at < segments, other=0), TILE)
        before += tl.where(at < segment, tiles, 0)
        total += tiles
    return tl.sum(before), tl.sum(total)


@jit
@no_type_check
def find_tile(lengths, segments, tile, TILE: tl.constexpr, BLOCK: tl.constexpr):
    """Find the segment that holds a tile, and the number of tiles before that segment."""
    segment = tl.zeros([], tl.int32)
    before = tl.zeros([], tl.int32)
    counted = tl.zeros([], tl.int32)
    for first in range(0, segments, BLOCK):
        at = first + tl.arange(0, BLOCK)
        tiles = tl.cdiv(tl.load(lengths + at, mask=at < segments, other=0), TILE)
        ends = counted + tl.cumsum(tiles)
        passed = ends <= tile
        segment += tl.sum(passed.to(tl.int32))
        before = tl.maximum(before, tl.max(tl.where(passed, ends, 0)))
        counted += tl.sum(tiles)
    return segment, before


@jit
@no_type_check
def find_share(lengths, share, segments, shares, TILE: tl.constexpr, BLOCK: tl.constexpr):
    """Find a share's first tile and the tile behind its last one."""
    total = count_tiles(lengths, segments, TILE, BLOCK)
    used = tl.maximum(tl.minimum(shares, total), 1)  # no share is empty but those that are not used
    tile = (share.to(tl.int64) * total // used).to(tl.int32)
    end = tl.minimum((share + 1).to(tl.int64) * total // used, total).to(tl.int32)
    return tile, end


@jit
@no_type_check
def load_rows(pointer, rows, there, DIM: tl.constexpr, DIMS: tl.constexpr):
    """Load some rows of DIM numbers, zeros where there is no row."""
    dim = tl.arange(0, DIMS)
    mask = there[:, None]
    if DIM < DIMS:
        mask = mask & (dim < DIM)[None, :]
    return tl.load(pointer + rows[:, None] * DIM + dim[None, :], mask=mask, other=0.0)


@jit
@no_type_check
def combine_kernel(
    part,
    part_lse,
    lengths,
    output,
    lse,
    segments,
    shares,
    pairs,
    DIM: tl.constexpr,
    COLUMNS: tl.constexpr,
    TILE: tl.constexpr,
    BLOCK: tl.constexpr,
    PARTS: tl.constexpr,
    OVERLAP: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Combine the partial results of one (segment, head of its group, query), some columns of the output a program.

    A share and a segment that meet own the partial results number share + segment: both only ever grow, so no two pairs
    have the same sum.
    """
    segment = tl.program_id(0) // pairs
    pair = tl.program_id(0) % pairs
    dim = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    tiles = tl.cdiv(tl.load(lengths + segment), TILE)
    before, total = count_before(lengths, segment, segments, TILE, BLOCK)
    total = tl.maximum(total, 1)
    used = tl.minimum(shares, total).to(tl.int64)
    first = ((before + 1) * used - 1) // total  # the share that holds the segment's first tile
    last = tl.where(tiles > 0, ((before + tiles) * used - 1) // total, first - 1)
    await_previous(OVERLAP)
    top = tl.full([], float("-inf"), tl.float32)
    total_weight = tl.zeros([], tl.float32)
    mean = tl.zeros([COLUMNS], tl.float32)
    for share in range(first, last + 1, PARTS):
        shared = share + tl.arange(0, PARTS)
        at = (shared + segment) * pairs + pair
        scores = tl.load(part_lse + at, mask=shared <= last, other=float("-inf"))
        highest = tl.maximum(top, tl.max(scores, 0))
        steady = tl.where(highest == float("-inf"), 0.0, highest)  # nothing seen so far
        fade = tl.exp2(top - steady)
        weights = tl.exp2(scores - steady)
        there = (shared <= last)[:, None] & (dim < DIM)[None, :]
        means = tl.load(part + at[:, None] * DIM + dim[None, :], mask=there, other=0.0)
        total_weight = total_weight * fade + tl.sum(weights, 0)
        mean = mean * fade + tl.sum(weights[:, None] * means, 0)
        top = highest
    total_weight = tl.where(total_weight == 0, 1.0, total_weight)  # nothing to see: zeros and -inf
    own = tl.program_id(0).to(tl.int64)
    mean = narrow(mean / total_weight, output.dtype.element_ty, INTERPRETED)
    tl.store(output + own * DIM + dim, mean, mask=dim < DIM)
    natural = (top + tl.log2(total_weight)) * 0.6931471805599453
    tl.store(lse + own, natural, mask=tl.program_id(1) == 0)


def combine(
    part: torch.Tensor,
    part_lse: torch.Tensor,
    lengths: torch.Tensor,
    output: torch.Tensor,
    lse: torch.Tensor,
    shares: int,
    tile: int,
    block: int,
) -> None:
    """Combine partial results: part [share + segment, pair, dim] and its base-2 LSE -> output and natural-log LSE.

    A pair is a head of the segment's group and a query. tile, block: those of the kernel that made the parts.
    """
    pairs, dim = part.shape[1:]
    segments, dims = lengths.numel(), power_of_2(dim, 16)
    few = segments * pairs * dims <= FEW * multiprocessors(part.device)
    columns = min(32 if few else 128, dims)
    overlap = overlaps(part.device)
    combine_kernel[(segments * pairs, -(-dim // columns))](
        part,
        part_lse,
        lengths,
        output,
        lse,
        segments,
        shares,
        pairs,
        DIM=dim,
        COLUMNS=columns,
        TILE=tile,
        BLOCK=block,
        PARTS=64 if few else 16,
        OVERLAP=overlap,
        INTERPRETED=INTERPRETED,
        num_warps=4 if few else 2,
        **early(overlap),
    )
