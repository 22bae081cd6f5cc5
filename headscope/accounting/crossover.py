"""The crossover: the context at which both branches save as many bytes; and the bounds that bytes put on a speed-up."""

from __future__ import annotations

from dataclasses import dataclass

from headscope.accounting.precision import Precision
from headscope.accounting.shape import Shape
from headscope.accounting.step import StepBytes, step_bytes


@dataclass(frozen=True)
class Keep:
    """What the branches keep. act: part of the activation channels of a projection. kv: part of the cache that is read.

    Both above 0, at most 1; 1 switches a branch off.
    """

    act: float
    kv: float

    def __post_init__(self) -> None:
        for name, value in (("keep_act", self.act), ("keep_kv", self.kv)):
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
                raise ValueError(f"`{name}` must be a part that is kept, above 0 and at most 1; got {value!r}")


@dataclass(frozen=True)
class Savings:
    """Bytes that a step no longer reads, for each branch; `feed_forward` is the projection branch without attention."""

    projection: float
    feed_forward: float
    kv: float

    @property
    def both(self) -> float:
        """The projection branch and the KV branch together: they save in different places."""
        return self.projection + self.kv


def savings(shape: Shape, precision: Precision, context: int, batch: int, keep: Keep) -> Savings:
    """Give what each branch saves in a step.

    Delta B_P = (B_MLP + B_Attn)(1 - r_P), Delta B_KV(n) = B_KV(n)(1 - r_KV)   (ByteCross, The Byte Crossover)

    In a batch the projection branch saves only columns that no sequence activates, see `step.share_read`.
    """
    dense = step_bytes(shape, precision, context, batch=batch)
    sparse = step_bytes(shape, precision, context, batch=batch, keep_act=keep.act, keep_kv=keep.kv)
    return Savings(
        projection=dense.projections - sparse.projections,
        feed_forward=dense.feed_forward - sparse.feed_forward,
        kv=dense.kv - sparse.kv,
    )


def bound(total: float, saved: float) -> float:
    """Give the most that a branch can speed a bandwidth-bound step up.

    B_total(n) / (B_total(n) - Delta B)   (ByteCross, The Byte Crossover)

    It falls with n for the projection branch, rises for the KV branch, and is largest for both together.
    """
    return total / (total - saved)


def bounds(dense: StepBytes, saved: Savings) -> dict[str, float]:
    """Give the bound of each branch, and of both together."""
    parts = {name: getattr(saved, name) for name in ("projection", "feed_forward", "kv", "both")}
    return {name: bound(dense.total, part) for name, part in parts.items()}


def crossover(
    shape: Shape, precision: Precision, batch: int, keep: Keep, *, feed_forward: bool = False
) -> float | None:
    """Give the context, in tokens, at which both branches save the same; None where the KV branch never gets there.

    Delta B_P = Delta B_KV(n*), for layers alike and one dtype   (ByteCross, The Byte Crossover)
    n* = P (1 - r_P) / (2 h_kv d_h (1 - r_KV)),  P = 3 d d_ff + 2 d^2 + 2 d h_kv d_h

    Here d^2 is d * heads * head dim, where heads are wider than d, weights and cache may have different dtypes, a batch
    shares the weights (see `step.share_read`), and sliding layers stop growing at their window.
    feed_forward: for the feed-forward projections alone.
    """
    saved = savings(shape, precision, 1, batch, keep)
    wanted = saved.feed_forward if feed_forward else saved.projection
    rate = batch * (1 - keep.kv) * precision.kv_bytes  # bytes saved for each number of the cache
    if rate == 0:
        return None
    return reach(shape, wanted / rate)


def reach(shape: Shape, numbers: float) -> float | None:
    """Give the context at which a sequence's cache shows so many numbers; None where sliding windows stop it before."""
    seen, start = 0.0, 0.0
    for end in sorted({layer.window or float("inf") for layer in shape.layers}):
        growing = sum(layer.kv for layer in shape.layers if (layer.window or float("inf")) >= end)
        if seen + growing * (end - start) >= numbers:
            return start + (numbers - seen) / growing
        seen, start = seen + growing * (end - start), end
    return None
