"""Projections of a few rows: weights stream by once, and what stands around them runs in the same kernel.

The RMS norm before a projection is a gain per input and one scale per row, so its scale is applied to the sum (float16
may not hold inputs times gain: there they are scaled first, or stay wide); what a residual stream takes in also gives
the squares from which the next norm finds that scale. Output tiles are split over the inputs, so that all
multiprocessors are busy to the end; the last program to finish a tile adds its parts in order, so a result never
depends on which one that is.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import no_type_check

import torch
from torch.nn.functional import linear, silu

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
from headscope.kernels.linear_tuning import Tuning, tuning
from headscope.kernels.norm import Norm, normed, normed_at_once, sum_squares

Bias = torch.Tensor | None
MOST_ROWS = 32  # more of them are a matrix product that PyTorch does as fast
COUNTERS = 1 << 16  # output tiles that a call may have


def project_reference(
    x: torch.Tensor, weights: Sequence[torch.Tensor], biases: Sequence[Bias], norm: Norm | None = None
) -> torch.Tensor:
    """Project with plain PyTorch: the oracle, and the way for CPUs and many rows. See `project`."""
    x = normed(x, norm)
    parts = [linear(x, weight, bias) for weight, bias in zip(weights, biases, strict=True)]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)


def gate_up_reference(
    x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, biases: Sequence[Bias], norm: Norm | None = None
) -> torch.Tensor:
    """Feed forward with plain PyTorch. See `gate_up`."""
    x = normed(x, norm)
    return silu(linear(x, gate, biases[0])) * linear(x, up, biases[1])


def add_project_reference(x: torch.Tensor, weight: torch.Tensor, bias: Bias, residual: torch.Tensor) -> torch.Tensor:
    """Project onto a residual stream with plain PyTorch. See `add_project`."""
    residual += linear(x, weight, bias)
    return sum_squares(residual)


@jit
@no_type_check
def load_bias(bias, column, outputs, BIAS: tl.constexpr):
    """Load the biases of some columns in fp32, zeros where there are none."""
    if BIAS:
        return tl.load(bias + column, mask=column < outputs, other=0.0).to(tl.float32)
    return tl.zeros(column.shape, tl.float32)


@jit
@no_type_check
def weighted(total, x, weight, INTERPRETED: tl.constexpr, VECTOR: tl.constexpr):
    """Add inputs [row, input] times weights [output, input]; a vector's products stay apart until the end."""
    if VECTOR:
        total += x.to(tl.float32) * weight.to(tl.float32)
    else:
        total = add_product(total, x, tl.trans(weight), INTERPRETED)
    return total


@jit
@no_type_check
def find_scales(squares, row, rows, parts, inputs, eps, PARTS: tl.constexpr):
    """Give the scale of each row's RMS norm, from the parts of its squares: [row, 1]."""
    part = tl.arange(0, PARTS)
    there = (row < rows)[:, None] & (part < parts)[None, :]
    square = tl.sum(tl.load(squares + row[:, None] * parts + part[None, :], mask=there, other=0.0), 1)
    return tl.rsqrt(square / inputs + eps)[:, None]


@jit
@no_type_check
def linear_kernel(
    x,
    gain,
    squares,
    weight,
    weight_1,
    weight_2,
    bias,
    bias_1,
    bias_2,
    residual,
    output,
    new_squares,
    partial,
    arrived,
    rows,
    inputs,
    outputs,
    outputs_1,
    outputs_2,
    columns,
    parts,
    split,
    eps,
    NORM: tl.constexpr,
    KIND: tl.constexpr,
    BIAS: tl.constexpr,
    WEIGHTS: tl.constexpr,
    ROWS: tl.constexpr,
    OUT: tl.constexpr,
    IN: tl.constexpr,
    SPLIT: tl.constexpr,
    PARTS: tl.constexpr,
    STAGES: tl.constexpr,
    OVERLAP: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Sum one part of the inputs for one tile of outputs; the last part of a tile finishes it.

    KIND: "project", up to three weights side by side; "gate_up", silu(first) * second; "add", onto the residual.
    """
    VECTOR: tl.constexpr = ROWS == 1
    WIDE: tl.constexpr = NORM and x.dtype.element_ty == tl.float16  # inputs times gain may be more than it holds
    FIRST: tl.constexpr = WIDE and not VECTOR
    tile = tl.program_id(0)
    part = tl.program_id(1)
    local = tile
    before = 0
    if KIND == "project" and WEIGHTS > 1:
        tiles = tl.cdiv(outputs, OUT)
        if local >= tiles:
            weight = weight_1
            bias = bias_1
            before = outputs
            local -= tiles
            outputs = outputs_1
            tiles = tl.cdiv(outputs, OUT)
            if WEIGHTS > 2 and local >= tiles:
                weight = weight_2
                bias = bias_2
                before += outputs
                local -= tiles
                outputs = outputs_2
    row = tl.arange(0, ROWS)
    column = local * OUT + tl.arange(0, OUT)
    steps = tl.cdiv(inputs, IN)
    first = part * steps // split
    count = (part + 1) * steps // split - first
    if VECTOR:
        total = tl.zeros([OUT, IN], tl.float32)
        other = tl.zeros([OUT, IN], tl.float32)
    else:
        total = tl.zeros([ROWS, OUT], tl.float32)
        other = tl.zeros([ROWS, OUT], tl.float32)
    there = (column < outputs)[:, None]
    from_weight = column.to(tl.int64)[:, None] * inputs
    await_previous(OVERLAP)
    if FIRST:
        scale = find_scales(squares, row, rows, parts, inputs, eps, PARTS)
    for step in tl.range(0, count, num_stages=STAGES):
        at = (first + step) * IN + tl.arange(0, IN)
        inside = (at < inputs)[None, :]
        values = tl.load(x + row[:, None] * inputs + at[None, :], mask=(row < rows)[:, None] & inside, other=0.0)
        if NORM:
            gains = tl.load(gain + at, mask=at < inputs, other=0.0)
            scaled = values.to(tl.float32) * gains.to(tl.float32)[None, :]
            if FIRST:
                scaled = scaled * scale
            values = scaled if WIDE and VECTOR else narrow(scaled, values.dtype, INTERPRETED)
        own = tl.load(weight + from_weight + at[None, :], mask=there & inside, other=0.0, eviction_policy="evict_first")
        total = weighted(total, values, own, INTERPRETED, VECTOR)
        if KIND == "gate_up":
            own = tl.load(
                weight_1 + from_weight + at[None, :], mask=there & inside, other=0.0, eviction_policy="evict_first"
            )
            other = weighted(other, values, own, INTERPRETED, VECTOR)
    if VECTOR:
        sums = tl.sum(total, 1)[None, :]
        others = tl.sum(other, 1)[None, :]
    else:
        sums = total
        others = other
    own_row = row[:, None]
    last = True
    if SPLIT:
        wide = tl.num_programs(0) * OUT
        place = partial + own_row * wide + (tile * OUT + tl.arange(0, OUT))[None, :]
        tl.store(place + part * ROWS * wide, sums)
        if KIND == "gate_up":
            tl.store(place + (split + part) * ROWS * wide, others)
        tl.debug_barrier()  # all of this part is written before it is counted
        last = tl.atomic_add(arrived + tile, 1, sem="acq_rel") == split - 1
        tl.debug_barrier()
    if last:
        if SPLIT:
            sums = tl.zeros([ROWS, OUT], tl.float32)
            others = tl.zeros([ROWS, OUT], tl.float32)
            for each in range(split):
                sums += tl.load(place + each * ROWS * wide, cache_modifier=".cg")
                if KIND == "gate_up":
                    others += tl.load(place + (split + each) * ROWS * wide, cache_modifier=".cg")
            tl.store(arrived + tile, 0)
        if NORM and not FIRST:
            scale = find_scales(squares, row, rows, parts, inputs, eps, PARTS)
            sums = sums * scale
            others = others * scale
        sums = sums + load_bias(bias, column, outputs, BIAS)[None, :]
        mask = (row < rows)[:, None] & (column < outputs)[None, :]
        target = own_row * columns + before + column[None, :]
        if KIND == "gate_up":
            others = others + load_bias(bias_1, column, outputs, BIAS)[None, :]
            sums = sums * tl.sigmoid(sums) * others
        if KIND == "add":
            sums = sums + tl.load(residual + target, mask=mask, other=0.0).to(tl.float32)
        given = narrow(sums, output.dtype.element_ty, INTERPRETED)
        tl.store(output + target, given, mask=mask)
        if KIND == "add":
            stored = tl.where(mask, given.to(tl.float32), 0.0)
            tl.store(new_squares + row * tl.num_programs(0) + tile, tl.sum(stored * stored, 1), mask=row < rows)


@cache
def counters(device: torch.device) -> torch.Tensor:
    """Give the counters of finished parts, zeros between calls; calls on one device come one after another."""
    return torch.zeros(COUNTERS, dtype=torch.int32, device=device)


def launch(
    kind: str,
    x: torch.Tensor,
    weights: Sequence[torch.Tensor],
    biases: Sequence[Bias],
    norm: Norm | None,
    residual: torch.Tensor | None,
    tuned: Tuning | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Run the kernel: the output, and for "add" the squares of the residual."""
    rows, inputs = x.shape
    padded = 1 if rows == 1 and x.dtype != torch.float32 else power_of_2(rows, 16)
    tuned = tuned or tuning(padded, kind, sum(weight.nbytes for weight in weights))
    overlap = overlaps(x.device)
    counts = [weight.shape[0] for weight in weights]
    tiles = sum(-(-count // tuned.out) for count in (counts if kind == "project" else counts[:1]))
    steps = -(-inputs // tuned.inputs)
    split = max(1, min(steps, -(-tuned.programs * multiprocessors(x.device) // tiles)))
    columns = sum(counts) if kind == "project" else counts[0]
    output = x.new_empty(rows, columns) if residual is None else residual
    squares = x.new_empty(rows, tiles, dtype=torch.float32) if kind == "add" else None
    halves = 2 if kind == "gate_up" else 1
    partial = x.new_empty(halves * split * padded * tiles * tuned.out if split > 1 else 0, dtype=torch.float32)
    biased = biases[0] is not None
    biases = [weight if bias is None else bias for weight, bias in zip(weights, biases, strict=True)]
    weights, biases = ([*given, *[given[0]] * (3 - len(given))] for given in (weights, biases))
    with torch.cuda.device_of(x):
        linear_kernel[(tiles, split)](
            x,
            None if norm is None else norm.gain,
            None if norm is None else norm.squares,
            *weights,
            *biases,
            residual,
            output,
            squares,
            partial,
            counters(x.device),
            rows,
            inputs,
            *[*counts, 0, 0][:3],
            columns,
            0 if norm is None else norm.squares.shape[1],
            split,
            0.0 if norm is None else norm.eps,
            NORM=norm is not None,
            KIND=kind,
            BIAS=biased,
            WEIGHTS=len(counts),
            ROWS=padded,
            OUT=tuned.out,
            IN=tuned.inputs,
            SPLIT=split > 1,
            PARTS=1 if norm is None else power_of_2(norm.squares.shape[1]),
            STAGES=tuned.stages,
            OVERLAP=overlap,
            INTERPRETED=INTERPRETED,
            num_warps=tuned.warps,
            **early(overlap),
        )
    return output, squares


def on_kernel(x: torch.Tensor) -> bool:
    """Tell whether the kernel serves these rows."""
    return on_triton(x) and x.shape[0] <= MOST_ROWS


def project_many(
    x: torch.Tensor, weights: Sequence[torch.Tensor], biases: Sequence[Bias], norm: Norm | None = None
) -> torch.Tensor:
    """Project many rows through PyTorch's matrix products; the weights may lie in any order. See `project`."""
    return project_reference(normed_at_once(x, norm), weights, biases)


def gate_up_many(
    x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, biases: Sequence[Bias], norm: Norm | None = None
) -> torch.Tensor:
    """Feed many rows forward. See `project_many`, `gate_up`."""
    return gate_up_reference(normed_at_once(x, norm), gate, up, biases)


def add_project_many(x: torch.Tensor, weight: torch.Tensor, bias: Bias, residual: torch.Tensor) -> torch.Tensor:
    """Add a projection of many rows. See `project_many`, `add_project`."""
    if not x.is_cuda:
        return add_project_reference(x, weight, bias, residual)
    residual.addmm_(x, weight.t())
    if bias is not None:
        residual += bias
    few = len(residual) <= MOST_ROWS  # the next norm may be a kernel's
    return sum_squares(residual) if few else residual.new_empty(len(residual), 0, dtype=torch.float32)


def project(
    x: torch.Tensor, weights: Sequence[torch.Tensor], biases: Sequence[Bias], norm: Norm | None = None
) -> torch.Tensor:
    """Project rows by up to three weights side by side, normalised first if asked.

    x: [row, inputs], contiguous. weights: each [outputs, inputs], contiguous, in the dtype of `x`. biases: each
    [outputs], or all None. Gives [row, all outputs].
    """
    if on_kernel(x):
        return launch("project", x, weights, biases, norm, None)[0]
    return project_many(x, weights, biases, norm)


def gate_up(
    x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, biases: Sequence[Bias], norm: Norm | None = None
) -> torch.Tensor:
    """Give silu(x gate^T) * (x up^T): [row, inputs] -> [row, outputs]. See `project`."""
    if on_kernel(x):
        return launch("gate_up", x, (gate, up), biases, norm, None)[0]
    return gate_up_many(x, gate, up, biases, norm)


def add_project(x: torch.Tensor, weight: torch.Tensor, bias: Bias, residual: torch.Tensor) -> torch.Tensor:
    """Add a projection to a residual stream [row, outputs] in place; give its squares, float32 [row, part].

    Of more than MOST_ROWS on a GPU it gives no parts: their next norm does not need them. See `project`, `Norm`.
    """
    if on_kernel(x):
        squares = launch("add", x, (weight,), (bias,), None, residual)[1]
        assert squares is not None
        return squares
    return add_project_many(x, weight, bias, residual)
