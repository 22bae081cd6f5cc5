"""Verify attention over ragged segments: several new queries per (row, head), causal among themselves.

The step that checks a draft's tokens. A segment's queries, those of all heads of its group, are the rows of one matrix
product, so keys and values are read once for all of them, in equal shares (see `headscope.kernels.shares`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import no_type_check

import torch

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
from headscope.kernels.decode import ragged_decode
from headscope.kernels.segments import check_segments
from headscope.kernels.shares import BLOCK, LOG2_E, combine, find_share, find_tile

CHUNK_BYTES = 64 * 2**20  # of fp32 scores that the reference holds at a time
WAVES = 4  # of programs, where there are several tiles of rows: their work is uneven


def reference(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    starts: torch.Tensor,
    lengths: torch.Tensor,
    scaling: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attend in fp32 with plain PyTorch: the oracle, and the way for CPUs. See `ragged_verify`."""
    row, head, new, dim = query.shape
    kv = lengths.shape[1]
    token = torch.arange(int(lengths.max()), device=query.device)
    there = token < lengths[..., None]
    slots = torch.where(there, starts[..., None] + token, 0)
    keys = key[slots].float().transpose(-1, -2)[:, :, None]
    values = value[slots].float().masked_fill(~there[..., None], 0)[:, :, None]
    grouped = query.view(row, kv, head // kv, new, dim)
    outputs, lses = [], []
    for at in torch.arange(new, device=query.device).split(
        max(1, CHUNK_BYTES // (4 * row * head * max(1, len(token))))
    ):
        seen = lengths[..., None] - (new - 1 - at)
        hidden = (token >= seen[..., None])[:, :, None]
        scores = (grouped[:, :, :, at].float() @ keys * scaling).masked_fill(hidden, -torch.inf)
        lse = scores.logsumexp(-1)
        weights = (scores - lse[..., None]).exp().masked_fill(hidden, 0)
        outputs.append((weights @ values).to(query.dtype))
        lses.append(lse)
    return torch.cat(outputs, dim=3).view(query.shape), torch.cat(lses, dim=3).view(row, head, new)


@jit
@no_type_check
def load_tile(pointer, there, STRIDE: tl.constexpr, DIM: tl.constexpr, DIMS: tl.constexpr, WHOLE: tl.constexpr):
    """Load a tile of rows, DIM of a row's STRIDE numbers; zeros for rows that are not there, unless all are."""
    token = tl.arange(0, there.shape[0])
    dim = tl.arange(0, DIMS)
    place = pointer + token[:, None] * STRIDE + dim[None, :]
    if WHOLE:
        if DIM == DIMS:
            return tl.load(place)
        else:
            return tl.load(place, mask=(dim < DIM)[None, :], other=0.0)
    elif DIM == DIMS:
        return tl.load(place, mask=there[:, None], other=0.0)
    else:
        return tl.load(place, mask=there[:, None] & (dim < DIM)[None, :], other=0.0)


@jit
@no_type_check
def attend(
    queries,
    queries_rest,
    keys,
    keys_rest,
    values,
    values_rest,
    seen,
    top,
    total_weight,
    mean,
    mean_rest,
    scale,
    REST: tl.constexpr,
    WHOLE: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Attend with some rows of queries to a tile of keys; of one that is not whole, a row sees the first `seen`."""
    scores = tl.zeros([queries.shape[0], keys.shape[0]], tl.float32)
    scores = add_product(scores, queries, tl.trans(keys), INTERPRETED)
    if REST:
        scores = add_product(scores, queries_rest, tl.trans(keys_rest), INTERPRETED)
    if not WHOLE:
        scores = tl.where(tl.arange(0, keys.shape[0])[None, :] < seen[:, None], scores, float("-inf"))
    highest = tl.maximum(top, tl.max(scores, 1))
    steady = highest
    if not WHOLE:
        steady = tl.where(highest == float("-inf"), 0.0, highest)  # a row that has seen nothing so far
    fade = tl.exp2((top - steady) * scale)
    weights = tl.exp2(scores * scale - (steady * scale)[:, None])
    total_weight = total_weight * fade + tl.sum(weights, 1)
    weights = narrow(weights, values.dtype, INTERPRETED)
    mean = add_product(mean * fade[:, None], weights, values, INTERPRETED)
    if REST:
        mean_rest = add_product(mean_rest * fade[:, None], weights, values_rest, INTERPRETED)
    return highest, total_weight, mean, mean_rest


@jit
@no_type_check
def store_part(part, there, mean, DIM: tl.constexpr, STRIDE: tl.constexpr):
    """Store DIM columns of a partial result."""
    dim = tl.arange(0, mean.shape[1])
    tl.store(part[:, None] + dim[None, :], mean, mask=there[:, None] & (dim < DIM)[None, :])


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
    pairs,
    span,
    DIM: tl.constexpr,
    MAIN: tl.constexpr,
    REST: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
    PEEL: tl.constexpr,
    OVERLAP: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Attend with ROWS pairs of each segment, (head of its group, query), to one share of the key tiles."""
    await_previous(OVERLAP)
    FULL: tl.constexpr = DIM - REST if REST else DIM  # dims of the main part
    pair = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    asked = pair < pairs
    place = pair % span
    lowest = tl.min(tl.where(asked, place, span - 1))
    highest = tl.max(tl.where(asked, place, 0))
    share = tl.program_id(1)
    token = tl.arange(0, TILE)
    tile, end = find_share(lengths, share, segments, shares, TILE, BLOCK)
    if tile < end:
        segment, before = find_tile(lengths, segments, tile, TILE, BLOCK)
        while tile < end:
            length = tl.load(lengths + segment)
            start = tl.load(starts + segment).to(tl.int64)
            after = before + tl.cdiv(length, TILE)
            stop = tl.minimum(end, after)
            if tile < stop:
                own = query + (segment.to(tl.int64) * pairs + tl.program_id(0) * ROWS) * DIM
                queries = load_tile(own, asked, DIM, FULL, MAIN, False)
                top = tl.full([ROWS], float("-inf"), tl.float32)
                total_weight = tl.zeros([ROWS], tl.float32)
                mean = tl.zeros([ROWS, MAIN], tl.float32)
                queries_rest = queries
                mean_rest = mean
                if REST:
                    queries_rest = load_tile(own + MAIN, asked, DIM, REST, REST, False)
                    mean_rest = tl.zeros([ROWS, REST], tl.float32)
                start += (tile - before) * TILE
                length -= (tile - before) * TILE
                seen = length - span + 1  # what the first query sees, from the share's first key on
                whole = tl.minimum(tl.maximum(seen + lowest, 0) // TILE, stop - tile) * TILE  # seen by all rows
                reach = tl.minimum(tl.cdiv(tl.maximum(seen + highest, 0), TILE), stop - tile) * TILE
                # From 0: Triton 3.8 neither widens nor pipelines the loads of a loop that begins elsewhere.
                if PEEL:
                    for first in tl.range(0, whole, TILE, num_stages=STAGES):
                        at = (start + first) * DIM
                        keys = load_tile(key + at, token >= 0, DIM, FULL, MAIN, True)
                        values = load_tile(value + at, token >= 0, DIM, FULL, MAIN, True)
                        keys_rest = keys
                        values_rest = values
                        if REST:
                            keys_rest = load_tile(key + at + MAIN, token >= 0, DIM, REST, REST, True)
                            values_rest = load_tile(value + at + MAIN, token >= 0, DIM, REST, REST, True)
                        top, total_weight, mean, mean_rest = attend(
                            queries,
                            queries_rest,
                            keys,
                            keys_rest,
                            values,
                            values_rest,
                            seen,
                            top,
                            total_weight,
                            mean,
                            mean_rest,
                            scale,
                            REST,
                            True,
                            INTERPRETED,
                        )
                else:
                    whole = 0
                for first in tl.range(0, reach - whole, TILE, num_stages=1 if PEEL else STAGES):
                    first += whole
                    at = (start + first) * DIM
                    there = token < length - first
                    keys = load_tile(key + at, there, DIM, FULL, MAIN, False)
                    values = load_tile(value + at, there, DIM, FULL, MAIN, False)
                    keys_rest = keys
                    values_rest = values
                    if REST:
                        keys_rest = load_tile(key + at + MAIN, there, DIM, REST, REST, False)
                        values_rest = load_tile(value + at + MAIN, there, DIM, REST, REST, False)
                    top, total_weight, mean, mean_rest = attend(
                        queries,
                        queries_rest,
                        keys,
                        keys_rest,
                        values,
                        values_rest,
                        seen - first + place,
                        top,
                        total_weight,
                        mean,
                        mean_rest,
                        scale,
                        REST,
                        False,
                        INTERPRETED,
                    )
                own_part = (share + segment).to(tl.int64) * pairs + pair
                total_weight = tl.where(total_weight == 0, 1.0, total_weight)  # a row that sees nothing: zeros and -inf
                tl.store(part_lse + own_part, top * scale + tl.log2(total_weight), mask=asked)
                store_part(part + own_part * DIM, asked, mean / total_weight[:, None], FULL, DIM)
                if REST:
                    store_part(part + own_part * DIM + MAIN, asked, mean_rest / total_weight[:, None], REST, DIM)
            tile = stop
            before = after
            segment += 1


@dataclass(frozen=True)
class Tuning:
    """How the split runs.

    rows: of a program's matrix products. tile: tokens of a key tile. warps, stages: of a program's pipeline. shares: of
    the keys per multiprocessor. registers: at most so many a thread, so that more programs fit; None: no limit.
    """

    rows: int
    tile: int = 64
    warps: int = 4
    stages: int = 3
    shares: int = 2
    registers: int | None = None
    peel: bool = False
    split: bool = True


def tuning(dim: int, pairs: int, dtype: torch.dtype) -> Tuning:
    """Give what was fastest on an H200, in bf16."""
    if dtype == torch.float32:
        return Tuning(16, 16)
    if pairs <= 16:
        return Tuning(16, max(16, 8192 // power_of_2(dim, 16)), 4, 2, 3)
    if pairs <= 32:
        return Tuning(32)
    if pairs <= 64:
        return Tuning(64)
    return Tuning(128, 64, 8, 3, 1)


def launch(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    starts: torch.Tensor,
    lengths: torch.Tensor,
    scaling: float,
    tuned: Tuning,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run the two kernels. See `ragged_verify`."""
    row, head, new, dim = query.shape
    segments, pairs, dims = lengths.numel(), head // lengths.shape[1] * new, power_of_2(dim, 16)
    main, rest = dims, 0
    if tuned.split and dim > dims // 2 and dim - dims // 2 == power_of_2(dim - dims // 2, 16) and dim != dims:
        main, rest = dims // 2, dim - dims // 2
    row_tiles = -(-pairs // tuned.rows)
    block = min(BLOCK, power_of_2(segments, 128))
    shares = tuned.shares * multiprocessors(key.device)
    if row_tiles > 1:
        shares = -(-WAVES * shares // row_tiles)
    shares = min(shares, key.shape[0] // tuned.tile + segments)
    part = query.new_empty((shares + segments, pairs, dim), dtype=torch.float32)
    part_lse = query.new_empty((shares + segments, pairs), dtype=torch.float32)
    output, lse = torch.empty_like(query), query.new_empty((row, head, new), dtype=torch.float32)
    overlap = overlaps(query.device)
    with torch.cuda.device_of(query):
        share_kernel[(row_tiles, shares)](
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
            pairs,
            new,
            DIM=dim,
            MAIN=main,
            REST=rest,
            ROWS=tuned.rows,
            TILE=tuned.tile,
            BLOCK=block,
            STAGES=tuned.stages,
            PEEL=tuned.peel,
            OVERLAP=overlap,
            INTERPRETED=INTERPRETED,
            num_warps=tuned.warps,
            maxnreg=tuned.registers,
            **early(overlap),
        )
        combine(part, part_lse, lengths, output, lse, shares, tuned.tile, block)
    return output, lse


def ragged_verify(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    starts: torch.Tensor,
    lengths: torch.Tensor,
    scaling: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attend with several new queries per head to segments whose last keys and values are the queries' own.

    query: [row, head, new, dim]; query i sees the first length - (new - 1 - i) tokens of its segment. key, value:
    [slot, dim], contiguous, in the query's dtype. starts: int64 [row, kv], the first slot of each segment. lengths:
    int32 [row, kv], its tokens, the new ones included; both on the device. Head h reads kv h // (heads // kvs).
    scaling: above 0. Gives the output [row, head, new, dim] in the query's dtype and the natural log of the sum of
    exponentials, float32 [row, head, new]; a query that sees nothing gives zeros and -inf.
    """
    check_segments(key, value, starts, lengths)
    _check(query, key, lengths, scaling)
    if query.shape[2] == 1:
        output, lse = ragged_decode(query[:, :, 0], key, value, starts, lengths, scaling)
        return output[:, :, None], lse[..., None]
    if on_triton(query):
        pairs = query.shape[1] // lengths.shape[1] * query.shape[2]
        tuned = tuning(query.shape[3], pairs, query.dtype)
        return launch(query.contiguous(), key, value, starts, lengths, scaling, tuned)
    return reference(query.contiguous(), key, value, starts, lengths, scaling)


def _check(query: torch.Tensor, key: torch.Tensor, lengths: torch.Tensor, scaling: float) -> None:
    row, kv = lengths.shape
    form = (row, key.shape[1])
    if query.ndim != 4 or (query.shape[0], query.shape[3]) != form or query.shape[1] % kv or not query.shape[2]:
        raise ValueError(
            f"`query` must be [row, head, new, dim] with {row} rows, a multiple of {kv} heads, at least one new token "
            f"and dim {key.shape[1]}, got {list(query.shape)}"
        )
    if query.dtype != key.dtype:
        raise ValueError(f"`query` must have the keys' dtype {key.dtype}, got {query.dtype}; convert it")
    if not scaling > 0:
        raise ValueError(f"`scaling` must be above 0, got {scaling}")
