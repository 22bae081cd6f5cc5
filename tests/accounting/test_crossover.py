"""Bounds run as the paper says, and at the crossover both branches save the same."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from headscope.accounting.crossover import Keep, bounds, crossover, savings
from headscope.accounting.precision import Precision
from headscope.accounting.shape import Layer, Shape
from headscope.accounting.step import kv_bytes, step_bytes
from tests.accounting import shapes as drawn

BF16 = Precision()


def bounds_at(shape: Shape, precision: Precision, context: int, batch: int, keep: Keep) -> dict[str, float]:
    return bounds(step_bytes(shape, precision, context, batch=batch), savings(shape, precision, context, batch, keep))


@settings(deadline=None)
@given(drawn.shapes(), drawn.precisions, drawn.contexts, st.integers(2, 50), drawn.batches, drawn.keeps)
def test_the_projection_bound_falls_and_the_cache_bound_rises(shape, precision, context, times, batch, keep) -> None:  # type: ignore[no-untyped-def]
    near = bounds_at(shape, precision, context, batch, keep)
    far = bounds_at(shape, precision, context * times, batch, keep)
    for name in ("projection", "feed_forward"):
        assert far[name] <= near[name] * (1 + 1e-12)
    assert far["kv"] >= near["kv"] * (1 - 1e-12)


@settings(deadline=None)
@given(drawn.shapes(sliding=False), drawn.contexts, st.integers(2, 50), drawn.keeps)
def test_without_windows_they_do_so_strictly(shape, context, times, keep) -> None:  # type: ignore[no-untyped-def]
    near, far = (bounds_at(shape, BF16, length, 1, keep) for length in (context, context * times))
    assume(near["projection"] > 1.001 and far["kv"] > 1.001)
    assert far["projection"] < near["projection"] and far["kv"] > near["kv"]


@settings(deadline=None)
@given(drawn.shapes(), drawn.precisions, drawn.contexts, drawn.batches, drawn.keeps)
def test_the_composition_has_the_largest_bound(shape, precision, context, batch, keep) -> None:  # type: ignore[no-untyped-def]
    found = bounds_at(shape, precision, context, batch, keep)
    assert found["both"] >= max(found["projection"], found["kv"]) and min(found.values()) >= 1
    assert found["feed_forward"] <= found["projection"]


@settings(deadline=None)
@given(drawn.shapes(), drawn.precisions, st.integers(1, 8), drawn.keeps)
def test_at_the_crossover_both_branches_save_the_same(shape, precision, batch, keep) -> None:  # type: ignore[no-untyped-def]
    for alone in (False, True):
        tokens = crossover(shape, precision, batch, keep, feed_forward=alone)
        saved = savings(shape, precision, 1, batch, keep)
        wanted = saved.feed_forward if alone else saved.projection
        if tokens is None:
            assert savings(shape, precision, 10**12, batch, keep).kv < wanted
        else:
            seen = sum(layer.kv * min(tokens, layer.window or tokens) for layer in shape.layers)
            assert batch * (1 - keep.kv) * precision.kv_bytes * seen == pytest.approx(wanted, rel=1e-9)


@settings(deadline=None)
@given(drawn.shapes(sliding=False), drawn.keeps, st.integers(1, 20))
def test_a_larger_batch_crosses_no_later(shape, keep, batch) -> None:  # type: ignore[no-untyped-def]
    dense = Shape(tuple(Layer(at.attention, at.feed_forward, at.kv) for at in shape.layers), shape.hidden, 1, True, 0)
    one, more = (crossover(dense, BF16, size, keep) for size in (batch, batch + 1))
    assert one is not None and more is not None and more <= one * (1 + 1e-9)


sizes = st.tuples(st.integers(1, 64), st.integers(1, 256), st.integers(1, 16), st.sampled_from([64, 128]))


@settings(deadline=None)
@given(sizes, st.integers(1, 80), drawn.keeps)
def test_it_is_the_papers_formula_where_heads_are_as_wide_as_the_layer(  # type: ignore[no-untyped-def]
    size, count, keep
) -> None:
    heads, wide, kv_heads, dim = size
    d, d_ff = heads * dim, wide * 64
    parameters = 3 * d * d_ff + 2 * d**2 + 2 * d * kv_heads * dim
    layer = Layer(2 * d**2 + 2 * d * kv_heads * dim, 3 * d * d_ff, kv=2 * kv_heads * dim)
    shape = Shape((layer,) * count, d, 1000, False, d)
    expected = parameters * (1 - keep.act) / (2 * kv_heads * dim * (1 - keep.kv))
    for precision in (BF16, Precision("float32", "float32", "fp8")):
        assert crossover(shape, precision, 1, keep) == pytest.approx(expected)
    assert crossover(shape, Precision("int4", "bf16"), 1, keep) == pytest.approx(expected / 4)
    assert crossover(shape, Precision("bf16", "fp8"), 1, keep) == pytest.approx(expected * 2)


def test_sliding_layers_stop_growing_so_that_it_comes_later_or_never() -> None:
    full, sliding = Layer(0, 1000, kv=1), Layer(0, 1000, kv=1, window=100)
    keep = Keep(0.5, 0.5)
    assert crossover(Shape((full, full), 1, 1, True, 0), BF16, 1, keep) == 1000
    assert crossover(Shape((full, sliding), 1, 1, True, 0), BF16, 1, keep) == 1900
    assert crossover(Shape((sliding, sliding), 1, 1, True, 0), BF16, 1, keep) is None
    assert kv_bytes(Shape((sliding, sliding), 1, 1, True, 0), BF16, 10**6) == 2 * 2 * 100


def test_a_branch_that_is_switched_off_saves_nothing() -> None:
    shape = Shape((Layer(100, 1000, kv=2),), 1, 1, True, 0)
    assert crossover(shape, BF16, 1, Keep(1, 0.5)) == 0
    assert crossover(shape, BF16, 1, Keep(0.5, 1)) is None
    assert bounds_at(shape, BF16, 10, 1, Keep(1, 1)) == {"projection": 1, "feed_forward": 1, "kv": 1, "both": 1}


@pytest.mark.parametrize(("act", "kv", "name"), [(0, 0.5, "keep_act"), (1.5, 0.5, "keep_act"), (0.5, True, "keep_kv")])
def test_what_is_kept_is_a_part(act: float, kv: float, name: str) -> None:
    with pytest.raises(ValueError, match=f"`{name}` must be a part that is kept, above 0 and at most 1; got"):
        Keep(act, kv)
