"""Active inputs: those of a projection whose magnitude is above a threshold, as the bits of words."""

from __future__ import annotations

from typing import no_type_check

from headscope.kernels.backend import jit, narrow, tl


@jit
@no_type_check
def load_inputs(x, gain, scale, channel, mask, NORM: tl.constexpr, INTERPRETED: tl.constexpr):
    """Load some inputs, normalised if asked, in fp32; zeros where there is none."""
    values = tl.load(x + channel, mask=mask, other=0.0)
    wide = values.to(tl.float32)
    if NORM:
        gains = tl.load(gain + channel, mask=mask, other=0.0).to(tl.float32)
        wide = narrow(wide * scale, values.dtype, INTERPRETED).to(tl.float32) * gains
        wide = narrow(wide, values.dtype, INTERPRETED).to(tl.float32)
    return wide


@jit
@no_type_check
def find_scale(squares, parts, inputs, eps, NORM: tl.constexpr, PARTS: tl.constexpr):
    """Give the scale of the RMS norm from the squares' parts; 1 without a norm."""
    scale = 1.0
    if NORM:
        each = tl.arange(0, PARTS)
        square = tl.sum(tl.load(squares + each, mask=each < parts, other=0.0), 0)
        scale = tl.rsqrt(square / inputs + eps)
    return scale


@jit
@no_type_check
def is_active(values, threshold, inside):
    """Tell which inputs are active, as 0 or 1; what is not a number is."""
    return (inside & ((tl.abs(values) <= threshold) == 0)).to(tl.int32)


@jit
@no_type_check
def next_active(bits, word):
    """Take the lowest bit of each word: the input that it stands for, -1 where the word is empty, and what is left.

    word: the input of bit 0. The power of 2 that a lowest bit is has its number in its exponent as a float.
    """
    lowest = bits & -bits
    exponent = lowest.to(tl.uint32, bitcast=True).to(tl.float32).to(tl.int32, bitcast=True) >> 23
    return tl.where(lowest != 0, word + exponent - 127, -1), bits ^ lowest
