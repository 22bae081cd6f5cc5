"""Verify attention over ragged segments: several new queries per (row, head), causal among themselves.

The step that checks a draft's tokens. A segment's queries, those of all heads of its group, are the rows of one matrix
product, so keys and values are read once for all of them, in equal shares (see `headscope.kernels.shares`).
"""

from __future__ import annotations

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
from headscope.kernels.verify_tuning import Tuning, tuning

CHUNK_BYTES = 64 * 2**20  # of fp32 scores that the reference holds at a time
WAVES = 4  # of programs, where the pairs of a segment take several: their work is uneven


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
    """Load DIM numbers of each row of STRIDE; zeros for a row that is not there, unless the tile is whole."""
    dim = tl.arange(0, DIMS)
    place = pointer + tl.arange(0, there.shape[0])[:, None] * STRIDE + dim[None, :]
    if WHOLE and DIM == DIMS:
        return tl.load(place)
    elif WHOLE:
        return tl.load(place, mask=(dim < DIM)[None, :], other=0.0)
    elif DIM == DIMS:
        return tl.load(place, mask=there[:, None], other=0.0)
    else:
        return tl.load(place, mask=there[:, None] & (dim < DIM)[None, :], other=0.0)


@jit
@no_type_check
def load_both(pointer, there, DIM: tl.constexpr, MAIN: tl.constexpr, DIMS: tl.constexpr, WHOLE: tl.constexpr):
    """Load both parts of some rows: MAIN numbers, padded to DIMS, and the rest of DIM; if there is none, one twice."""
    main = load_tile(pointer, there, DIM, MAIN, DIMS, WHOLE)
    rest = main
    if MAIN < DIM:
        rest = load_tile(pointer + MAIN, there, DIM, DIM - MAIN, DIM - MAIN, WHOLE)
    return main, rest


@jit
@no_type_check
def attend(
    key,
    value,
    there,
    seen,
    queries,
    queries_rest,
    top,
    total_weight,
    mean,
    mean_rest,
    scale,
    DIM: tl.constexpr,
    MAIN: tl.constexpr,
    WHOLE: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Attend to a tile of keys: all of it if it is whole, else each row to the first `seen`; `top` is not scaled."""
    keys, keys_rest = load_both(key, there, DIM, MAIN, mean.shape[1], WHOLE)
    values, values_rest = load_both(value, there, DIM, MAIN, mean.shape[1], WHOLE)
    scores = tl.zeros([queries.shape[0], keys.shape[0]], tl.float32)
    scores = add_product(scores, queries, tl.trans(keys), INTERPRETED)
    if MAIN < DIM:
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
    if MAIN < DIM:
        mean_rest = add_product(mean_rest * fade[:, None], weights, values_rest, INTERPRETED)
    return highest, total_weight, mean, mean_rest


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
    DIMS: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
    OVERLAP: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Attend with ROWS pairs of each segment, (head of its group, one of `span` queries), to one share of the tiles."""
    await_previous(OVERLAP)
    block = tl.program_id(0) * ROWS
    share = tl.program_id(1)
    pair = block + tl.arange(0, ROWS)
    asked = pair < pairs
    later = pair % span  # keys that a pair sees and the segment's first query does not
    least = tl.min(tl.where(asked, later, span))
    most = tl.max(tl.where(asked, later, 0))
    token = tl.arange(0, TILE)
    dim = tl.arange(0, DIMS)
    tile, end = find_share(lengths, share, segments, shares, TILE, BLOCK)
    if tile < end:
        segment, before = find_tile(lengths, segments, tile, TILE, BLOCK)
        while tile < end:
            length = tl.load(lengths + segment)
            start = tl.load(starts + segment).to(tl.int64)
            after = before + tl.cdiv(length, TILE)
            stop = tl.minimum(end, after)
            if tile < stop:
                own = segment.to(tl.int64) * pairs + block
                queries, queries_rest = load_both(query + own * DIM, asked, DIM, MAIN, DIMS, False)
                top = tl.full([ROWS], float("-inf"), tl.float32)
                total_weight = tl.zeros([ROWS], tl.float32)
                mean = tl.zeros([ROWS, DIMS], tl.float32)
                mean_rest = tl.zeros([ROWS, DIM - MAIN if MAIN < DIM else DIMS], tl.float32)
                start += (tile - before) * TILE
                length -= (tile - before) * TILE
                first_sees = length - span + 1
                whole = tl.minimum(tl.maximum(first_sees + least, 0) // TILE, stop - tile) * TILE
                reach = tl.minimum(tl.cdiv(tl.maximum(first_sees + most, 0), TILE), stop - tile) * TILE
                # The tiles that all pairs see as a whole. Both loops begin at 0: Triton 3.8 neither widens nor
                # pipelines the loads of one that begins elsewhere.
                for first in tl.range(0, whole, TILE, num_stages=STAGES):
                    at = (start + first) * DIM
                    top, total_weight, mean, mean_rest = attend(
                        key + at,
                        value + at,
                        token,
                        later,
                        queries,
                        queries_rest,
                        top,
                        total_weight,
                        mean,
                        mean_rest,
                        scale,
                        DIM,
                        MAIN,
                        True,
                        INTERPRETED,
                    )
                # The segment's last ones. `first` grows by itself: with `start + whole + first` in the addresses, the
                # assembler ran the matrix products of both loops one after another.
                for first in tl.range(0, reach - whole, TILE, num_stages=1):
                    first += whole
                    at = (start + first) * DIM
                    top, total_weight, mean, mean_rest = attend(
                        key + at,
                        value + at,
                        token < length - first,
                        first_sees - first + later,
                        queries,
                        queries_rest,
                        top,
                        total_weight,
                        mean,
                        mean_rest,
                        scale,
                        DIM,
                        MAIN,
                        False,
                        INTERPRETED,
                    )
                own = (share + segment).to(tl.int64) * pairs + pair
                total_weight = tl.where(total_weight == 0, 1.0, total_weight)  # a pair that sees nothing
                tl.store(part_lse + own, top * scale + tl.log2(total_weight), mask=asked)
                to = part + own[:, None] * DIM + dim[None, :]
                tl.store(to, mean / total_weight[:, None], mask=asked[:, None] & (dim < MAIN)[None, :])
                if MAIN < DIM:
                    to = part + own[:, None] * DIM + MAIN + tl.arange(0, DIM - MAIN)[None, :]
                    tl.store(to, mean_rest / total_weight[:, None], mask=asked[:, None])
            tile = stop
            before = after
            segment += 1


def main_part(dim: int) -> int:
    """Split a head dim into two powers of 2, if it is two, and give the first: 80 is 64 + 16; any other is padded."""
    main = 1 << (dim.bit_length() - 1)
    return main if dim - main == power_of_2(dim - main, 16) else dim


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
    segments, pairs = lengths.numel(), head // lengths.shape[1] * new
    main = main_part(dim)
    blocks = -(-pairs // tuned.rows)
    shares = tuned.shares * multiprocessors(key.device)
    if blocks > 1:
        shares = -(-WAVES * shares // blocks)
    shares = min(shares, key.shape[0] // tuned.tile + segments)
    block = min(BLOCK, power_of_2(segments, 128))
    part = query.new_empty((shares + segments, pairs, dim), dtype=torch.float32)
    part_lse = query.new_empty((shares + segments, pairs), dtype=torch.float32)
    output, lse = torch.empty_like(query), query.new_empty((row, head, new), dtype=torch.float32)
    overlap = overlaps(query.device)
    with torch.cuda.device_of(query):
        share_kernel[(blocks, shares)](
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
            DIMS=power_of_2(main, 16),
            ROWS=tuned.rows,
            TILE=tuned.tile,
            BLOCK=block,
            STAGES=tuned.stages,
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
