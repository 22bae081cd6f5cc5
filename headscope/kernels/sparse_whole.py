"""Sparse projections in one kernel: a program goes through all inputs for its outputs, each group of threads its own.

A group of threads loads one input's weights, 16 bytes a thread, and has words of up to 32 inputs. It goes from active
input to active input, a few at once, so all loads that it has in flight are of weights that count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, no_type_check

import torch

from headscope.kernels.active import find_scale, is_active, load_inputs, next_active
from headscope.kernels.backend import INTERPRETED, await_previous, early, jit, narrow, overlaps, power_of_2, tl
from headscope.kernels.linear import load_bias


@dataclass(frozen=True)
class Whole:
    """How the kernel runs.

    out: outputs of a program, a power of 2. warps: of a program. together: inputs whose weights a thread loads at once.
    registers: of a thread, at most; with a limit, the compiler puts those loads before their first use.
    """

    out: int = 32
    warps: int = 8
    together: int = 8
    registers: int = 80

    def groups(self, size: int) -> int:
        """Give the groups of threads of a program, for numbers of this size in bytes."""
        return max(1, self.warps * 32 * 16 // (size * self.out))


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
    TOGETHER: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Sum the weights of active inputs for some outputs, in fp32. span: inputs of a word."""
    BITS: tl.constexpr = max(32, column.shape[0])  # laid out as the weights are, so that words need not be moved
    bit = tl.arange(0, BITS)[None, :]
    group = tl.arange(0, GROUPS)
    there = (column < outputs)[None, :]
    total = tl.zeros([GROUPS, column.shape[0]], tl.float32)
    for first in range(0, inputs, span * GROUPS):
        word = first + span * group
        at = word[:, None] + bit
        inside = (bit < span) & (at < inputs)
        active = is_active(load_inputs(x, gain, scale, at, inside, NORM, INTERPRETED), threshold, inside)
        bits = tl.sum(active << (bit & 31), 1)
        most = tl.max(tl.sum(active, 1), 0)
        for _ in range(0, most, TOGETHER):
            tiles = ()
            factors = ()
            for _ in tl.static_range(TOGETHER):
                channel, bits = next_active(bits, word)
                found = channel >= 0
                from_weight = weight + channel.to(tl.int64)[:, None] * outputs + column[None, :]
                own = tl.load(from_weight, mask=found[:, None] & there, other=0.0, eviction_policy="evict_first")
                factor = load_inputs(x, gain, scale, channel, found, NORM, INTERPRETED)
                tiles = tiles + (own,)  # noqa: RUF005 - Triton does not unpack
                factors = factors + (factor,)  # noqa: RUF005
            for each in tl.static_range(TOGETHER):
                total += factors[each][:, None] * tiles[each].to(tl.float32)
    return tl.sum(total, 0)


@jit
@no_type_check
def whole_kernel(
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
    TOGETHER: tl.constexpr,
    PARTS: tl.constexpr,
    OVERLAP: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Give one tile of outputs of one of the weights.

    KIND: "project", up to three weights side by side; "gate_up", silu(first) * second; "add", onto the residual.
    """
    await_previous(OVERLAP)
    local = tl.program_id(0)
    before = 0
    if KIND == "project" and WEIGHTS > 1:
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
    scale = find_scale(squares, parts, inputs, eps, NORM, PARTS)
    column = local * OUT + tl.arange(0, OUT)
    sums = sum_active(
        x, gain, scale, threshold, weight, column, inputs, outputs, span, NORM, GROUPS, TOGETHER, INTERPRETED
    )
    sums += load_bias(bias, column, outputs, BIAS)
    if KIND == "gate_up":
        others = sum_active(
            x, gain, scale, threshold_1, weight_1, column, inputs, outputs, span, NORM, GROUPS, TOGETHER, INTERPRETED
        )
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


def launch(call: Any, tuned: Whole) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Run the kernel on a `headscope.kernels.sparse_linear.Call`."""
    x, norm = call.x, call.norm
    own = call.counts if call.kind == "project" else call.counts[:1]
    tiles = sum(-(-count // tuned.out) for count in own)
    output, squares = call.results(tiles)
    groups = tuned.groups(x.element_size())
    rounds = -(-call.inputs // (32 * groups))
    overlap = overlaps(x.device)
    with torch.cuda.device_of(x):
        whole_kernel[(tiles,)](
            x,
            None if norm is None else norm.gain,
            None if norm is None else norm.squares,
            *call.three(call.weights),
            *call.three(call.some_biases),
            call.residual,
            output,
            squares,
            *call.three(call.thresholds),
            0.0 if norm is None else norm.eps,
            call.inputs,
            *[*call.counts, 0, 0][:3],
            0 if norm is None else norm.squares.shape[1],
            -(-call.inputs // (rounds * groups)),
            NORM=norm is not None,
            KIND=call.kind,
            BIAS=call.biased,
            WEIGHTS=len(call.counts),
            OUT=tuned.out,
            GROUPS=groups,
            TOGETHER=tuned.together,
            PARTS=1 if norm is None else power_of_2(norm.squares.shape[1]),
            OVERLAP=overlap,
            INTERPRETED=INTERPRETED,
            num_warps=tuned.warps,
            maxnreg=tuned.registers,
            **early(overlap),
        )
    return output, squares
