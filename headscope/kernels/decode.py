"""Decode attention over ragged segments: one query per (row, head), one segment of keys and values per (row, kv).

Flash-Decoding's split over keys (Dao et al., 2023), in equal shares (see `headscope.kernels.shares`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import no_type_check

import torch

from headscope.kernels import flash
from headscope.kernels.backend import (
    INTERPRETED,
    add_product,
    await_previous,
    early,
    jit,
    multiprocessors,
    narrow,
    on_triton,
    overlaps,
    power_of_2,
    tl,
)
from headscope.kernels.segments import check_segments
from headscope.kernels.shares import BLOCK, LOG2_E, combine, find_share, find_tile, load_rows


def reference(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    starts: torch.Tensor,
    lengths: torch.Tensor,
    scaling: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attend in fp32 with plain PyTorch: the oracle, and the way for CPUs. See `ragged_decode`."""
    row, head, dim = query.shape
    kv = lengths.shape[1]
    token = torch.arange(int(lengths.max()), device=query.device)
    there = token < lengths[..., None]
    slots = torch.where(there, starts[..., None] + token, 0)
    keys = key[slots].float()
    values = value[slots].float().masked_fill(~there[..., None], 0)
    scores = query.float().view(row, kv, head // kv, dim) @ keys.transpose(-1, -2) * scaling
    scores = scores.masked_fill(~there[:, :, None], -torch.inf)
    lse = scores.logsumexp(-1)
    weights = (scores - lse[..., None]).exp().masked_fill(~there[:, :, None], 0)
    return (weights @ values).view(row, head, dim).to(query.dtype), lse.view(row, head)


@jit
@no_type_check
def share_kernel(
    query,
    key,
    value,
    starts,
    lengths,
    part,
    part_lse,
    scale,
    segments,
    shares,
    GROUP: tl.constexpr,
    DIM: tl.constexpr,
    ROWS: tl.constexpr,
    DIMS: tl.constexpr,
    TILE: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
    OVERLAP: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Attend to one share of the tiles: one partial result (base-2 LSE) for each segment that the share meets."""
    await_previous(OVERLAP)
    share = tl.program_id(0)
    tile, end = find_share(lengths, share, segments, shares, TILE, BLOCK)
    head = tl.arange(0, ROWS)
    dim = tl.arange(0, DIMS)
    token = tl.arange(0, TILE)
    heads = (head < GROUP)[:, None] & (dim < DIM)[None, :]
    if tile < end:
        segment, before = find_tile(lengths, segments, tile, TILE, BLOCK)
        while tile < end:
            length = tl.load(lengths + segment)
            start = tl.load(starts + segment).to(tl.int64)
            after = before + tl.cdiv(length, TILE)
            stop = tl.minimum(end, after)
            if tile < stop:
                queries = load_rows(query + segment.to(tl.int64) * GROUP * DIM, head, head < GROUP, DIM, DIMS)
                top = tl.full([ROWS], float("-inf"), tl.float32)
                total_weight = tl.zeros([ROWS], tl.float32)
                mean = tl.zeros([ROWS, DIMS], tl.float32)
                start += (tile - before) * TILE
                length -= (tile - before) * TILE
                # From 0: Triton 3.8 neither widens nor pipelines the loads of a loop that begins at `tile`.
                for first in tl.range(0, (stop - tile) * TILE, TILE, num_stages=STAGES):
                    there = token < length - first
                    at = (start + first) * DIM
                    keys = load_rows(key + at, token, there, DIM, DIMS)
                    scores = tl.zeros([ROWS, TILE], tl.float32)
                    scores = add_product(scores, queries, tl.trans(keys), INTERPRETED) * scale
                    scores = tl.where(there[None, :], scores, float("-inf"))
                    highest = tl.maximum(top, tl.max(scores, 1))
                    fade = tl.exp2(top - highest)
                    weights = tl.exp2(scores - highest[:, None])
                    total_weight = total_weight * fade + tl.sum(weights, 1)
                    values = load_rows(value + at, token, there, DIM, DIMS)
                    mean = mean * fade[:, None]
                    mean = add_product(mean, narrow(weights, values.dtype, INTERPRETED), values, INTERPRETED)
                    top = highest
                own = (share + segment).to(tl.int64) * GROUP
                tl.store(part + (own + head[:, None]) * DIM + dim[None, :], mean / total_weight[:, None], mask=heads)
                tl.store(part_lse + own + head, top + tl.log2(total_weight), mask=head < GROUP)
            tile = stop
            before = after
            segment += 1


@dataclass(frozen=True)
class Tuning:
    """How the split runs: bytes of a key tile, warps and pipeline stages of a program, shares per multiprocessor."""

    tile_bytes: int = 16384
    warps: int = 4
    stages: int = 2
    shares: int = 3

    def tile(self, dims: int, element_bytes: int) -> int:
        """Give the tokens of a key tile."""
        return max(16, self.tile_bytes // (dims * element_bytes))


def tuning(dim: int) -> Tuning:
    """Give what was fastest on an H200, in bf16, on ragged lengths, for groups of 1 to 7.

    A group of one is padded to a matrix product too: summed without one, it ran at 0.42 of the speed.
    """
    if dim == power_of_2(dim, 16):
        return Tuning()
    return Tuning(tile_bytes=8192, warps=2, stages=3, shares=4 if dim < 96 else 3)


def launch(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    starts: torch.Tensor,
    lengths: torch.Tensor,
    scaling: float,
    tuned: Tuning,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run the two kernels. See `ragged_decode`."""
    row, head, dim = query.shape
    segments, group, dims = lengths.numel(), head // lengths.shape[1], power_of_2(dim, 16)
    tile = tuned.tile(dims, key.element_size())
    block = min(BLOCK, power_of_2(segments, 128))
    shares = min(tuned.shares * multiprocessors(key.device), key.shape[0] // tile + segments)
    part = query.new_empty((shares + segments, group, dim), dtype=torch.float32)
    part_lse = query.new_empty((shares + segments, group), dtype=torch.float32)
    output, lse = torch.empty_like(query), query.new_empty((row, head), dtype=torch.float32)
    overlap = overlaps(query.device)
    with torch.cuda.device_of(query):
        share_kernel[(shares,)](
            query,
            key,
            value,
            starts,
            lengths,
            part,
            part_lse,
            scaling * LOG2_E,
            segments,
            shares,
            GROUP=group,
            DIM=dim,
            ROWS=power_of_2(group, 16),  # what a matrix product takes at least; a group of 1 is padded too
            DIMS=dims,
            TILE=tile,
            BLOCK=block,
            STAGES=tuned.stages,
            OVERLAP=overlap,
            INTERPRETED=INTERPRETED,
            num_warps=tuned.warps,
            **early(overlap),
        )
        combine(part, part_lse, lengths, output, lse, shares, tile, block)
    return output, lse


def ragged_decode(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    starts: torch.Tensor,
    lengths: torch.Tensor,
    scaling: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attend with one query per head to segments of keys and values; heads of a group share their kv's segment.

    query: [row, head, dim]. key, value: [slot, dim], contiguous, in the query's dtype. starts: int64 [row, kv], the
    first slot of each segment. lengths: int32 [row, kv], its tokens; both on the device. Head h reads kv
    h // (heads // kvs). Gives the output [row, head, dim] in the query's dtype and the natural log of the sum of
    exponentials, float32 [row, head]; an empty segment gives zeros and -inf.
    """
    check_segments(key, value, starts, lengths)
    _check_query(query, key, lengths)
    if flash.serves(query):
        return flash.flash_decode(query, key, value, starts, lengths, scaling)
    if on_triton(query):
        return launch(query.contiguous(), key, value, starts, lengths, scaling, tuning(query.shape[2]))
    return reference(query, key, value, starts, lengths, scaling)


def _check_query(query: torch.Tensor, key: torch.Tensor, lengths: torch.Tensor) -> None:
    row, kv = lengths.shape
    if query.ndim != 3 or query.shape[0] != row or query.shape[1] % kv or query.shape[2] != key.shape[1]:
        raise ValueError(
            f"`query` must be [row, head, dim] with {row} rows, a multiple of {kv} heads and dim {key.shape[1]}, "
            f"got {list(query.shape)}"
        )
    if query.dtype != key.dtype:
        raise ValueError(f"`query` must have the keys' dtype {key.dtype}, got {query.dtype}; convert it")
