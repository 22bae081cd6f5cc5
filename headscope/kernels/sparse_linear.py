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



def masked(x: torch.Tensor, threshold: torch.Tensor | float) -> torch.Tensor:
    """Set the inputs to zero that are not above the threshold; what is not a number stays."""
    below = x.abs().float() <= threshold  # in fp32: PyTorch would round the threshold to the dtype of x
    return x.masked_fill(below, 0)


def project_reference(
    x: torch.Tensor,
    weights: Sequence[torch.Tensor],
    biases: Sequence[Bias],
    thresholds: Sequence[float],
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
    thresholds: Sequence[float],
    norm: Norm | None = None,
) -> torch.Tensor:
    """Feed forward with plain PyTorch. See `sparse_gate_up`."""
    first, second = project_reference(x, (gate, up), biases, thresholds, norm).split(
        (gate.shape[0], up.shape[0]), dim=-1
    )
    return silu(first) * second


def add_project_reference(
    x: torch.Tensor, weight: torch.Tensor, bias: Bias, thresholds: Sequence[float], residual: torch.Tensor
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
def next_active(bits, word):
    """Take the lowest bit of each word: the input that it stands for, -1 where the word is empty, and what is left."""
    lowest = bits & -bits
    exponent = lowest.to(tl.uint32, bitcast=True).to(tl.float32).to(tl.int32, bitcast=True) >> 23
    return tl.where(lowest != 0, word + exponent - 127, -1), bits ^ lowest


@jit
@no_type_check
def sum_active(
    x,
    gain,
    scale,
    threshold,
    weight,
    column,
    inputs,
    outputs,
    span,
    NORM: tl.constexpr,
    GROUPS: tl.constexpr,
    STAGES: tl.constexpr,
    TOGETHER: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Sum the weights of active inputs for some outputs, in fp32.

    Each group of threads has a word of `span` inputs, a bit for each, set where it is active. It goes from bit to bit,
    so that all loads it has in flight are of weights that count.
    """
    BITS: tl.constexpr = max(32, column.shape[0])  # laid out as the weights are, so that words need not be moved
    bit = tl.arange(0, BITS)[None, :]
    group = tl.arange(0, GROUPS)
    there = (column < outputs)[None, :]
    total = tl.zeros([GROUPS, column.shape[0]], tl.float32)
    for first in range(0, inputs, span * GROUPS):
        word = first + span * group
        at = word[:, None] + bit
        inside = (bit < span) & (at < inputs)
        values = load_inputs(x, gain, scale, at, inside, NORM, INTERPRETED)
        active = (inside & ((tl.abs(values) <= threshold) == 0)).to(tl.int32)  # not a number: active
        bits = tl.sum(active << (bit & 31), 1)
        most = tl.max(tl.sum(active, 1), 0)
        for _ in tl.range(0, most, TOGETHER, num_stages=STAGES):
            tiles = ()
            factors = ()
            for _ in tl.static_range(TOGETHER):
                channel, bits = next_active(bits, word)
                found = channel >= 0
                own = tl.load(
                    weight + channel.to(tl.int64)[:, None] * outputs + column[None, :],
                    mask=found[:, None] & there,
                    other=0.0,
                    eviction_policy="evict_first",
                )
                tiles = tiles + (own,)
                factors = factors + (load_inputs(x, gain, scale, channel, found, NORM, INTERPRETED),)
            for each in tl.static_range(TOGETHER):
                total += factors[each][:, None] * tiles[each].to(tl.float32)
    return tl.sum(total, 0)


@jit
@no_type_check
def sparse_kernel(
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
    threshold,
    threshold_1,
    threshold_2,
    eps,
    inputs,
    outputs,
    outputs_1,
    outputs_2,
    parts,
    span,
    NORM: tl.constexpr,
    KIND: tl.constexpr,
    BIAS: tl.constexpr,
    WEIGHTS: tl.constexpr,
    OUT: tl.constexpr,
    GROUPS: tl.constexpr,
    PARTS: tl.constexpr,
    STAGES: tl.constexpr,
    TOGETHER: tl.constexpr,
    OVERLAP: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Give some outputs of one of the weights.

    KIND: "project", up to three weights side by side; "gate_up", silu(first) * second; "add", onto the residual.
    """
    await_previous(OVERLAP)
    local = tl.program_id(0)
    before = 0
    if KIND == "project":
        if WEIGHTS > 1:
            tiles = tl.cdiv(outputs, OUT)
            if local >= tiles:
                weight = weight_1
                bias = bias_1
                threshold = threshold_1
                before = outputs
                local -= tiles
                outputs = outputs_1
                if WEIGHTS > 2:
                    tiles = tl.cdiv(outputs, OUT)
                    if local >= tiles:
                        weight = weight_2
                        bias = bias_2
                        threshold = threshold_2
                        before += outputs
                        local -= tiles
                        outputs = outputs_2
    scale = 1.0
    if NORM:
        each = tl.arange(0, PARTS)
        square = tl.sum(tl.load(squares + each, mask=each < parts, other=0.0), 0)
        scale = tl.rsqrt(square / inputs + eps)
    column = local * OUT + tl.arange(0, OUT)
    sums = sum_active(
        x, gain, scale, threshold, weight, column, inputs, outputs, span, NORM, GROUPS, STAGES, TOGETHER, INTERPRETED
    )
    sums += load_bias(bias, column, outputs, BIAS)
    if KIND == "gate_up":
        others = sum_active(
            x, gain, scale, threshold_1, weight_1, column, inputs, outputs, span, NORM, GROUPS, STAGES, TOGETHER,
            INTERPRETED,
        )  # fmt: skip
        others += load_bias(bias_1, column, outputs, BIAS)
        sums = sums * tl.sigmoid(sums) * others
    mask = column < outputs
    if KIND == "add":
        sums += tl.load(residual + column, mask=mask, other=0.0).to(tl.float32)
    given = narrow(sums, output.dtype.element_ty, INTERPRETED)
    tl.store(output + before + column, given, mask=mask)
    if KIND == "add":
        written = tl.where(mask, given.to(tl.float32), 0.0)
        tl.store(new_squares + local, tl.sum(written * written, 0))


@dataclass(frozen=True)
class Tuning:
    """How a sparse projection runs.

    out: outputs of a program. groups: of threads, each with inputs of its own. warps: of a program. stages, unroll:
    of the loop over active inputs.
    """

    out: int = 32
    groups: int = 128
    warps: int = 16
    stages: int = 1
    together: int = 4


def tuning(rows: int, inputs: int, outputs: int) -> Tuning:
    """Give what was fastest on an H200 in bf16."""
    return Tuning()


def launch(
    kind: str,
    x: torch.Tensor,
    weights: Sequence[torch.Tensor],
    biases: Sequence[Bias],
    thresholds: Sequence[float],
    norm: Norm | None,
    residual: torch.Tensor | None,
    tuned: Tuning | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Run the kernel: the output, and for "add" the squares of the residual."""
    rows, inputs = x.shape
    counts = [weight.shape[0] for weight in weights]
    tuned = tuned or tuning(rows, inputs, sum(counts))
    columns = sum(counts) if kind == "project" else counts[0]
    tiles = sum(-(-count // tuned.out) for count in (counts if kind == "project" else counts[:1]))
    output = x.new_empty(rows, columns) if residual is None else residual
    squares = x.new_empty(rows, tiles, dtype=torch.float32) if kind == "add" else None
    given = [weight if bias is None else bias for weight, bias in zip(weights, biases, strict=True)]
    padded: Any = [[*each, *[each[0]] * (3 - len(each))] for each in (list(weights), given, list(thresholds))]
    rounds = -(-inputs // (32 * tuned.groups))
    overlap = overlaps(x.device)
    with torch.cuda.device_of(x):
        sparse_kernel[(tiles,)](
            x,
            None if norm is None else norm.gain,
            None if norm is None else norm.squares,
            *padded[0],
            *padded[1],
            residual,
            output,
            squares,
            *padded[2],
            0.0 if norm is None else norm.eps,
            inputs,
            *[*counts, 0, 0][:3],
            0 if norm is None else norm.squares.shape[1],
            -(-inputs // (rounds * tuned.groups)),
            NORM=norm is not None,
            KIND=kind,
            BIAS=biases[0] is not None,
            WEIGHTS=len(counts),
            OUT=tuned.out,
            GROUPS=tuned.groups,
            PARTS=1 if norm is None else power_of_2(norm.squares.shape[1]),
            STAGES=tuned.stages,
            TOGETHER=tuned.together,
            OVERLAP=overlap,
            INTERPRETED=INTERPRETED,
            num_warps=tuned.warps,
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
    thresholds: Sequence[float],
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
    thresholds: Sequence[float],
    norm: Norm | None = None,
) -> torch.Tensor:
    """Give silu(x gate^T) * (x up^T), each from its own active inputs. See `sparse_project`."""
    check(x, (gate, up), biases, thresholds)
    if on_kernel(x, (gate, up)):
        return launch("gate_up", x, (gate, up), biases, thresholds, norm, None)[0]
    return gate_up_reference(x, gate, up, biases, thresholds, norm)


def sparse_add_project(
    x: torch.Tensor, weight: torch.Tensor, bias: Bias, thresholds: Sequence[float], residual: torch.Tensor
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


def check(
    x: torch.Tensor, weights: Sequence[torch.Tensor], biases: Sequence[Bias], thresholds: Sequence[float]
) -> None:
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
    if len(thresholds) != len(weights):
        raise ValueError(f"`thresholds` must be {len(weights)} numbers, one a weight, got {len(thresholds)}")
