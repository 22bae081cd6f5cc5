"""The crossing: the context at which both branches take the same time, once each also pays for its kernels."""

from __future__ import annotations

from headscope.accounting.crossover import Keep, reach, savings
from headscope.accounting.precision import Precision
from headscope.accounting.shape import Shape


def byte_ms(count: float, tb_per_s: float) -> float:
    """Give the time that bytes take at a bandwidth in TB/s."""
    if not tb_per_s > 0:
        raise ValueError(f"`tb_per_s` must be a bandwidth above 0, got {tb_per_s!r}")
    return count / tb_per_s / 1e9


def gap_growth_ms(shape: Shape, precision: Precision, batch: int, keep: Keep, tb_per_s: float) -> float:
    """Give how much the byte-time gap between the branches grows with each token of context, while no layer slides.

    s = (KV bytes of a token) (1 - r_KV) / bandwidth   (ByteCross, Locating the Crossing)
    """
    skipped = batch * (1 - keep.kv) * precision.kv_bytes * sum(layer.kv for layer in shape.layers)
    return byte_ms(skipped, tb_per_s)


def latency_crossing(
    shape: Shape,
    precision: Precision,
    batch: int,
    keep: Keep,
    *,
    tb_per_s: float,
    projection_ms: float,
    kv_ms: float,
) -> float | None:
    """Give the context, in tokens, from which on the KV branch is the faster one; None where it never is.

    n_lat = n* - (c_P - c_KV) / s   (ByteCross, Locating the Crossing)

    That is where Delta B_KV(n) = Delta B_P - (c_P - c_KV) * bandwidth, which also holds where layers slide.
    projection_ms, kv_ms: c_P and c_KV, what each branch takes beyond its bytes. tb_per_s: the effective bandwidth.
    0: the KV branch is the faster one at every length.
    """
    wanted = savings(shape, precision, 1, batch, keep).projection - (projection_ms - kv_ms) * tb_per_s * 1e9
    byte_ms(wanted, tb_per_s)
    rate = batch * (1 - keep.kv) * precision.kv_bytes
    if wanted <= 0:
        return 0.0
    return reach(shape, wanted / rate) if rate else None
