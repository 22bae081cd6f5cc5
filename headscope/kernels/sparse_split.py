"""Sparse projections in two kernels: inputs split over programs of one warp, then the parts added in order.

A program has 256 outputs and some words of 32 inputs. It goes from active input to active input, a few at once, so all
loads that it has in flight are of weights that count, 512 bytes of each input.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, no_type_check

import torch

from headscope.kernels.active import find_scale, is_active, load_inputs, next_active
from headscope.kernels.backend import INTERPRETED, await_previous, early, jit, narrow, overlaps, power_of_2, tl
from headscope.kernels.linear import load_bias

OUT = 256  # outputs of a program: 16 bytes a thread, in bf16
FINISH_NUMBERS = 8192  # parts that a program of the second kernel holds at a time


@dataclass(frozen=True)
class Split:
    """How the two kernels run.

    words: of 32 inputs, that a program goes through; a power of 2. together: inputs whose weights are loaded at once.
    finish: outputs of a program of the second kernel.
    """

    words: int = 1
    together: int = 4
    finish: int = 32


@jit
@no_type_check
def part_kernel(
    x,
    gain,
    squares,
    weight,
    weight_1,
    weight_2,
    partial,
    threshold,
    threshold_1,
    threshold_2,
    eps,
    inputs,
    outputs,
    outputs_1,
    outputs_2,
    parts,
    NORM: tl.constexpr,
    WEIGHTS: tl.constexpr,
    OUT: tl.constexpr,
    WORDS: tl.constexpr,
    TOGETHER: tl.constexpr,
    PARTS: tl.constexpr,
    OVERLAP: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Sum one part of the inputs, WORDS times 32, for one tile of outputs of one of the weights."""
    await_previous(OVERLAP)
    part = tl.program_id(1)
    local = tl.program_id(0)
    columns = outputs + outputs_1 + outputs_2
    before = 0
    if WEIGHTS > 1:
        tiles = tl.cdiv(outputs, OUT)
        if local >= tiles:
            weight = weight_1
            threshold = threshold_1
            before = outputs
            local -= tiles
            outputs = outputs_1
            if WEIGHTS > 2:
                tiles = tl.cdiv(outputs, OUT)
                if local >= tiles:
                    weight = weight_2
                    threshold = threshold_2
                    before += outputs
                    local -= tiles
                    outputs = outputs_2
    scale = find_scale(squares, parts, inputs, eps, NORM, PARTS)
    bit = tl.arange(0, 32)[None, :]
    word = part * (32 * WORDS) + 32 * tl.arange(0, WORDS)
    at = word[:, None] + bit
    inside = at < inputs
    active = is_active(load_inputs(x, gain, scale, at, inside, NORM, INTERPRETED), threshold, inside)
    words = tl.sum(active << bit, 1)
    batches = tl.sum(tl.maximum((tl.sum(active, 1) + TOGETHER - 1) // TOGETHER, 1), 0)
    slot = tl.arange(0, TOGETHER)
    column = local * OUT + tl.arange(0, OUT)
    there = (column < outputs)[None, :]
    total = tl.zeros([OUT], tl.float32)
    at_word = part * (32 * WORDS) - 32
    bits = at_word * 0
    for _ in range(batches):
        if bits == 0:  # a word without active inputs takes a batch as well
            at_word += 32
            bits = tl.sum(tl.where(word == at_word, words, 0), 0)
        channel = tl.full([TOGETHER], -1, tl.int32)
        for each_slot in tl.static_range(TOGETHER):
            found, bits = next_active(bits, at_word)
            channel = tl.where(slot == each_slot, found, channel)
        there_too = (channel >= 0)[:, None] & there
        from_weight = weight + channel.to(tl.int64)[:, None] * outputs + column[None, :]
        own = tl.load(from_weight, mask=there_too, other=0.0, eviction_policy="evict_first").to(tl.float32)
        factor = load_inputs(x, gain, scale, channel, channel >= 0, NORM, INTERPRETED)
        total += tl.sum(factor[:, None] * own, 0)
    tl.store(partial + part * columns + before + column, total, mask=column < outputs)


@jit
@no_type_check
def add_parts(partial, column, mask, columns, SPLIT: tl.constexpr, TOGETHER: tl.constexpr):
    """Add the parts of some outputs, in order."""
    total = tl.zeros(column.shape, tl.float32)
    each = tl.arange(0, TOGETHER)
    for first in range(0, SPLIT, TOGETHER):
        part = (first + each)[:, None]
        at = partial + part * columns + column[None, :]
        total += tl.sum(tl.load(at, mask=(part < SPLIT) & mask[None, :], other=0.0), 0)
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
    """Add the parts of some outputs, and do what follows: biases, silu(first) * second, or the residual."""
    await_previous(OVERLAP)
    column = tl.program_id(0) * OUT + tl.arange(0, OUT)
    columns = outputs + outputs_1 + outputs_2
    wide = columns
    if KIND == "gate_up":
        wide = outputs
    mask = column < wide
    sums = add_parts(partial, column, mask, columns, SPLIT, TOGETHER)
    sums += load_bias(bias, column, outputs, BIAS)
    if KIND == "gate_up":
        others = add_parts(partial, column + outputs, mask, columns, SPLIT, TOGETHER)
        others += load_bias(bias_1, column, outputs_1, BIAS)
        sums = sums * tl.sigmoid(sums) * others
    if KIND == "project" and BIAS:
        second = column - outputs
        third = second - outputs_1
        sums += tl.load(bias_1 + second, mask=(second >= 0) & (second < outputs_1), other=0.0).to(tl.float32)
        sums += tl.load(bias_2 + third, mask=(third >= 0) & (third < outputs_2), other=0.0).to(tl.float32)
    if KIND == "add":
        sums += tl.load(residual + column, mask=mask, other=0.0).to(tl.float32)
    given = narrow(sums, output.dtype.element_ty, INTERPRETED)
    tl.store(output + column, given, mask=mask)
    if KIND == "add":
        written = tl.where(mask, given.to(tl.float32), 0.0)
        tl.store(new_squares + tl.program_id(0), tl.sum(written * written, 0))


def launch(call: Any, tuned: Split) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Run the two kernels on a `headscope.kernels.sparse_linear.Call`."""
    x, norm, counts = call.x, call.norm, call.counts
    split = -(-call.inputs // (32 * tuned.words))
    partial = x.new_empty(split, sum(counts), dtype=torch.float32)
    output, squares = call.results(-(-call.columns // tuned.finish))
    sizes = [*counts, 0, 0][:3]
    overlap = overlaps(x.device)
    with torch.cuda.device_of(x):
        part_kernel[(sum(-(-count // OUT) for count in counts), split)](
            x,
            None if norm is None else norm.gain,
            None if norm is None else norm.squares,
            *call.three(call.weights),
            partial,
            *call.three(call.thresholds),
            0.0 if norm is None else norm.eps,
            call.inputs,
            *sizes,
            0 if norm is None else norm.squares.shape[1],
            NORM=norm is not None,
            WEIGHTS=len(counts),
            OUT=OUT,
            WORDS=tuned.words,
            TOGETHER=tuned.together,
            PARTS=1 if norm is None else power_of_2(norm.squares.shape[1]),
            OVERLAP=overlap,
            INTERPRETED=INTERPRETED,
            num_warps=1,
            **early(overlap),
        )
        finish_kernel[(-(-call.columns // tuned.finish),)](
            partial,
            *call.three(call.some_biases),
            call.residual,
            output,
            squares,
            *sizes,
            KIND=call.kind,
            BIAS=call.biased,
            SPLIT=split,
            TOGETHER=min(power_of_2(split), FINISH_NUMBERS // tuned.finish),
            OUT=tuned.finish,
            OVERLAP=overlap,
            INTERPRETED=INTERPRETED,
            num_warps=4,
            **early(overlap),
        )
    return output, squares
