"""Projections of a few rows that read only the weights of active inputs, those whose magnitude is above a threshold.

TEAL's decode step (Liu et al., arXiv 2408.14690). An input's weights must lie together, so weights are stored input by
input (`channel_major`). Inputs are split into fixed parts, and a second kernel adds the parts in order: no atomics, so
equal inputs give equal bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, no_type_check

import torch
from torch.nn.functional import linear, silu

from headscope.kernels.backend import (
    INTERPRETED,
    await_previous,
    early,
    jit,
    narrow,
    on_triton,
    overlaps,
    power_of_2,
    tl,
)
from headscope.kernels.linear import Bias, Norm, load_bias, normed, sum_squares

FINISH_NUMBERS = 8192  # parts of outputs that a program of the second kernel holds at a time
OUT = 256  # outputs of a program: 16 bytes a thread of one warp, in bf16
MOST_ROWS = 4  # a union of more rows' active inputs leaves nothing to skip


def masked(x: torch.Tensor, threshold: torch.Tensor | float) -> torch.Tensor:
    """Set the inputs to zero that are not above the threshold; what is not a number stays."""
    below = x.abs().float() <= threshold  # in fp32: PyTorch would round the threshold to the dtype of x
    return x.masked_fill(below, 0)


def project_reference(
    x: torch.Tensor,
    weights: Sequence[torch.Tensor],
    biases: Sequence[Bias],
    thresholds: torch.Tensor,
    norm: Norm | None = None,
) -> torch.Tensor:
    """Project with plain PyTorch: the oracle, and the way for CPUs. See `sparse_project`."""
    x = normed(x, norm)
    each = zip(weights, biases, thresholds, strict=True)
    return torch.cat([linear(masked(x, threshold), weight, bias) for weight, bias, threshold in each], dim=-1)


def gate_up_reference(
    x: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    biases: Sequence[Bias],
    thresholds: torch.Tensor,
    norm: Norm | None = None,
) -> torch.Tensor:
    """Feed forward with plain PyTorch. See `sparse_gate_up`."""
    first, second = project_reference(x, (gate, up), biases, thresholds, norm).split(
        (gate.shape[0], up.shape[0]), dim=-1
    )
    return silu(first) * second


def add_project_reference(
    x: torch.Tensor, weight: torch.Tensor, bias: Bias, thresholds: torch.Tensor, residual: torch.Tensor
) -> torch.Tensor:
    """Project onto a residual stream with plain PyTorch. See `sparse_add_project`."""
    residual += project_reference(x, (weight,), (bias,), thresholds)
    return sum_squares(residual)


@jit
@no_type_check
def load_inputs(x, gain, scale, channel, mask, NORM: tl.constexpr, INTERPRETED: tl.constexpr):
    """Load some inputs of one row, normalised if asked, in fp32; zeros where there is none."""
    values = tl.load(x + channel, mask=mask, other=0.0)
    wide = values.to(tl.float32)
    if NORM:
        gains = tl.load(gain + channel, mask=mask, other=0.0).to(tl.float32)
        wide = narrow(wide * scale, values.dtype, INTERPRETED).to(tl.float32) * gains
        wide = narrow(wide, values.dtype, INTERPRETED).to(tl.float32)
    return wide


@jit
@no_type_check
def sparse_kernel(
    x,
    gain,
    squares,
    thresholds,
    weight,
    weight_1,
    weight_2,
    partial,
    rows,
    inputs,
    outputs,
    outputs_1,
    outputs_2,
    parts,
    eps,
    NORM: tl.constexpr,
    WEIGHTS: tl.constexpr,
    ROWS: tl.constexpr,
    OUT: tl.constexpr,
    TOGETHER: tl.constexpr,
    WORDS: tl.constexpr,
    STAGES: tl.constexpr,
    PARTS: tl.constexpr,
    OVERLAP: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Sum one part of the inputs, WORDS times 32, for one tile of outputs of one of the weights.

    A word has a bit for each of 32 inputs, set where it is active. The program goes from bit to bit, so that all loads
    it has in flight are of weights that count.
    """
    await_previous(OVERLAP)
    part = tl.program_id(1)
    local = tl.program_id(0)
    columns = outputs + outputs_1 + outputs_2
    before = 0
    if WEIGHTS > 1:
        tiles = tl.cdiv(outputs, OUT)
        if local >= tiles:
            weight = weight_1
            thresholds += 1
            before = outputs
            local -= tiles
            outputs = outputs_1
            if WEIGHTS > 2:
                tiles = tl.cdiv(outputs, OUT)
                if local >= tiles:
                    weight = weight_2
                    thresholds += 1
                    before += outputs
                    local -= tiles
                    outputs = outputs_2
    threshold = tl.load(thresholds)
    row = tl.arange(0, ROWS)
    scale = tl.zeros([ROWS], tl.float32)
    if NORM:
        each = tl.arange(0, PARTS)[None, :]
        known = (row < rows)[:, None] & (each < parts)
        square = tl.sum(tl.load(squares + row[:, None] * parts + each, mask=known, other=0.0), 1)
        scale = tl.rsqrt(square / inputs + eps)
    bit = tl.arange(0, 32)[None, :]
    word = part * (32 * WORDS) + 32 * tl.arange(0, WORDS)
    active = tl.zeros([WORDS, 32], tl.int32)
    for each_row in tl.static_range(ROWS):
        own_scale = tl.sum(tl.where(row == each_row, scale, 0.0), 0)
        at = word[:, None] + bit
        inside = (at < inputs) & (each_row < rows)
        values = load_inputs(x + each_row * inputs, gain, own_scale, at, inside, NORM, INTERPRETED)
        active |= (inside & ((tl.abs(values) <= threshold) == 0)).to(tl.int32)  # not a number: active
    words = tl.sum(active << bit, 1)
    batches = tl.sum(tl.maximum((tl.sum(active, 1) + TOGETHER - 1) // TOGETHER, 1), 0)
    slot = tl.arange(0, TOGETHER)
    column = local * OUT + tl.arange(0, OUT)
    there = (column < outputs)[None, :]
    total = tl.zeros([ROWS, OUT], tl.float32)
    at_word = tl.min(word, 0) - 32
    bits = at_word * 0
    for _ in tl.range(0, batches, num_stages=STAGES):
        if bits == 0:
            at_word += 32
            bits = tl.sum(tl.where(word == at_word, words, 0), 0)
        channel = tl.full([TOGETHER], -1, tl.int32)
        for each_slot in tl.static_range(TOGETHER):
            lowest = bits & -bits
            exponent = lowest.to(tl.uint32, bitcast=True).to(tl.float32).to(tl.int32, bitcast=True) >> 23
            channel = tl.where((slot == each_slot) & (lowest != 0), at_word + exponent - 127, channel)
            bits ^= lowest
        found = channel >= 0
        own = tl.load(
            weight + channel.to(tl.int64)[:, None] * outputs + column[None, :],
            mask=found[:, None] & there,
            other=0.0,
            eviction_policy="evict_first",
        ).to(tl.float32)
        for each_row in tl.static_range(ROWS):
            own_scale = tl.sum(tl.where(row == each_row, scale, 0.0), 0)
            mine = found & (each_row < rows)
            input = load_inputs(x + each_row * inputs, gain, own_scale, channel, mine, NORM, INTERPRETED)
            input = tl.where(tl.abs(input) <= threshold, 0.0, input)
            sums = tl.sum(input[:, None] * own, 0)[None, :]
            total += tl.where((row == each_row)[:, None], sums, 0.0)
    to = partial + (part * rows + row[:, None]) * columns + before + column[None, :]
    tl.store(to, total, mask=(row < rows)[:, None] & there)


@jit
@no_type_check
def add_parts(partial, row, column, mask, rows, columns, SPLIT: tl.constexpr, TOGETHER: tl.constexpr):
    """Add the parts of some columns of one row, in order."""
    total = tl.zeros(column.shape, tl.float32)
    each = tl.arange(0, TOGETHER)
    for first in range(0, SPLIT, TOGETHER):
        part = first + each
        at = partial + (part[:, None] * rows + row) * columns + column[None, :]
        total += tl.sum(tl.load(at, mask=(part < SPLIT)[:, None] & mask[None, :], other=0.0), 0)
    return total


@jit
@no_type_check
def finish_kernel(
    partial,
    bias,
    bias_1,
    bias_2,
    residual,
    output,
    new_squares,
    rows,
    outputs,
    outputs_1,
    outputs_2,
    KIND: tl.constexpr,
    BIAS: tl.constexpr,
    SPLIT: tl.constexpr,
    TOGETHER: tl.constexpr,
    OUT: tl.constexpr,
    OVERLAP: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Add the parts of some columns of one row, and do what follows: biases, silu(first) * second, or the residual."""
    await_previous(OVERLAP)
    row = tl.program_id(1)
    column = tl.program_id(0) * OUT + tl.arange(0, OUT)
    columns = outputs + outputs_1 + outputs_2
    wide = columns
    if KIND == "gate_up":
        wide = outputs
    mask = column < wide
    sums = add_parts(partial, row, column, mask, rows, columns, SPLIT, TOGETHER)
    sums += load_bias(bias, column, outputs, BIAS)
    if KIND == "gate_up":
        others = add_parts(partial, row, column + outputs, mask, rows, columns, SPLIT, TOGETHER)
        others += load_bias(bias_1, column, outputs_1, BIAS)
        sums = sums * tl.sigmoid(sums) * others
    if KIND == "project" and BIAS:
        second = column - outputs
        third = second - outputs_1
        sums += tl.load(bias_1 + second, mask=(second >= 0) & (second < outputs_1), other=0.0).to(tl.float32)
        sums += tl.load(bias_2 + third, mask=(third >= 0) & (third < outputs_2), other=0.0).to(tl.float32)
    if KIND == "add":
        sums += tl.load(residual + row * wide + column, mask=mask, other=0.0).to(tl.float32)
    given = narrow(sums, output.dtype.element_ty, INTERPRETED)
    tl.store(output + row * wide + column, given, mask=mask)
    if KIND == "add":
        written = tl.where(mask, given.to(tl.float32), 0.0)
        tl.store(new_squares + row * tl.num_programs(0) + tl.program_id(0), tl.sum(written * written, 0))


@dataclass(frozen=True)
class Tuning:
    """How a sparse projection runs.

    words: of 32 inputs, that a program goes through; a power of 2. together: inputs whose weights it loads at once.
    stages: such loads that are in flight at once. finish: outputs that a program of the second kernel finishes.
    """

    words: int = 2
    together: int = 8
    stages: int = 1
    finish: int = 32


def tuning(rows: int, inputs: int, outputs: int) -> Tuning:
    """Give what was fastest on an H200 in bf16."""
    return Tuning()


def launch(
    kind: str,
    x: torch.Tensor,
    weights: Sequence[torch.Tensor],
    biases: Sequence[Bias],
    thresholds: torch.Tensor,
    norm: Norm | None,
    residual: torch.Tensor | None,
    tuned: Tuning | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Run the two kernels: the output, and for "add" the squares of the residual."""
    rows, inputs = x.shape
    counts = [weight.shape[0] for weight in weights]
    tuned = tuned or tuning(rows, inputs, sum(counts))
    split = -(-inputs // (32 * tuned.words))
    wide = counts[0] if kind == "gate_up" else sum(counts)
    partial = x.new_empty(split, rows, sum(counts), dtype=torch.float32)
    output = x.new_empty(rows, wide) if residual is None else residual
    finishing = -(-wide // tuned.finish)
    squares = x.new_empty(rows, finishing, dtype=torch.float32) if kind == "add" else None
    given = [weight if bias is None else bias for weight, bias in zip(weights, biases, strict=True)]
    padded: Any = [[*each, *[each[0]] * (3 - len(each))] for each in (list(weights), given)]
    sizes = [*counts, 0, 0][:3]
    overlap = overlaps(x.device)
    with torch.cuda.device_of(x):
        sparse_kernel[(sum(-(-count // OUT) for count in counts), split)](
            x,
            None if norm is None else norm.gain,
            None if norm is None else norm.squares,
            thresholds,
            *padded[0],
            partial,
            rows,
            inputs,
            *sizes,
            0 if norm is None else norm.squares.shape[1],
            0.0 if norm is None else norm.eps,
            NORM=norm is not None,
            WEIGHTS=len(counts),
            ROWS=power_of_2(rows),
            OUT=OUT,
            TOGETHER=tuned.together,
            WORDS=tuned.words,
            STAGES=tuned.stages,
            PARTS=1 if norm is None else power_of_2(norm.squares.shape[1]),
            OVERLAP=overlap,
            INTERPRETED=INTERPRETED,
            num_warps=1,
            **early(overlap),
        )
        finish_kernel[(finishing, rows)](
            partial,
            *padded[1],
            residual,
            output,
            squares,
            rows,
            *sizes,
            KIND=kind,
            BIAS=biases[0] is not None,
            SPLIT=split,
            TOGETHER=min(power_of_2(split), FINISH_NUMBERS // tuned.finish),
            OUT=tuned.finish,
            OVERLAP=overlap,
            INTERPRETED=INTERPRETED,
            num_warps=4,
            **early(overlap),
        )
    return output, squares


def channel_major(weight: torch.Tensor) -> torch.Tensor:
    """Give the same [outputs, inputs] with each input's weights together in memory: stride (1, outputs)."""
    return weight.t().contiguous().t()


def on_kernel(x: torch.Tensor, weights: Sequence[torch.Tensor]) -> bool:
    """Tell whether the kernel serves these rows and weights."""
    stored = all(weight.stride(0) == 1 and weight.stride(1) == weight.shape[0] for weight in weights)
    return stored and on_triton(x) and 1 <= x.shape[0] <= MOST_ROWS


def sparse_project(
    x: torch.Tensor,
    weights: Sequence[torch.Tensor],
    biases: Sequence[Bias],
    thresholds: torch.Tensor,
    norm: Norm | None = None,
) -> torch.Tensor:
    """Project rows by up to three weights side by side, each from its own active inputs, normalised first if asked.

    x: [row, inputs], contiguous. weights: each [outputs, inputs] in the dtype of `x`, as `channel_major` gives them;
    the reference serves other layouts. biases: each [outputs], or all None. thresholds: float32 [weight] on the device:
    an input counts where its magnitude is above; below 0, all do. Several rows: each has its own active inputs, and
    what any of them needs is read once. Gives [row, all outputs].
    """
    check(x, weights, biases, thresholds)
    if on_kernel(x, weights):
        return launch("project", x, weights, biases, thresholds, norm, None)[0]
    return project_reference(x, weights, biases, thresholds, norm)


def sparse_gate_up(
    x: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    biases: Sequence[Bias],
    thresholds: torch.Tensor,
    norm: Norm | None = None,
) -> torch.Tensor:
    """Give silu(x gate^T) * (x up^T), each from its own active inputs. See `sparse_project`."""
    check(x, (gate, up), biases, thresholds)
    if on_kernel(x, (gate, up)):
        return launch("gate_up", x, (gate, up), biases, thresholds, norm, None)[0]
    return gate_up_reference(x, gate, up, biases, thresholds, norm)


def sparse_add_project(
    x: torch.Tensor, weight: torch.Tensor, bias: Bias, thresholds: torch.Tensor, residual: torch.Tensor
) -> torch.Tensor:
    """Add a projection from active inputs to a residual stream [row, outputs] in place.

    Gives the stream's squares, float32 [row, part]. See `sparse_project`, `headscope.kernels.linear.Norm`.
    """
    check(x, (weight,), (bias,), thresholds)
    if on_kernel(x, (weight,)):
        squares = launch("add", x, (weight,), (bias,), thresholds, None, residual)[1]
        assert squares is not None
        return squares
    return add_project_reference(x, weight, bias, thresholds, residual)


def check(x: torch.Tensor, weights: Sequence[torch.Tensor], biases: Sequence[Bias], thresholds: torch.Tensor) -> None:
    """Check what can be checked without waiting for the device: shapes, dtypes and layout; ValueError."""
    if x.ndim != 2 or not x.is_contiguous():
        raise ValueError(f"`x` must be [row, inputs], contiguous, got {list(x.shape)}; flatten it")
    for weight in weights:
        if weight.ndim != 2 or weight.shape[1] != x.shape[1] or weight.dtype != x.dtype:
            raise ValueError(
                f"`weights` must be [outputs, {x.shape[1]}] of {x.dtype}, got {list(weight.shape)} of {weight.dtype}"
            )
    if not 1 <= len(weights) <= 3 or len(biases) != len(weights):
        raise ValueError(f"`weights` must be 1 to 3 with a bias (or None) each, got {len(weights)} and {len(biases)}")
    if len({bias is None for bias in biases}) > 1:
        raise ValueError("`biases` must be there for all weights or for none")
    if thresholds.shape != (len(weights),) or thresholds.dtype != torch.float32:
        raise ValueError(
            f"`thresholds` must be float32 [{len(weights)}], one a weight, got {thresholds.dtype} "
            f"{list(thresholds.shape)}"
        )
