"""Shapes and keep ratios drawn by hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from headscope.accounting.crossover import Keep
from headscope.accounting.precision import Precision
from headscope.accounting.shape import Layer, Shape


@st.composite
def layers(draw: st.DrawFn, sliding: bool = True) -> Layer:
    """A dense or mixed layer; its attention may slide."""
    experts = draw(st.sampled_from([0, 0, 4, 16]))
    return Layer(
        attention=draw(st.integers(1, 10**8)),
        feed_forward=draw(st.integers(1, 10**9)),
        kv=draw(st.integers(1, 64)) * 64,
        other=draw(st.integers(0, 10**5)),
        expert=draw(st.integers(1, 10**8)) if experts else 0,
        experts=experts,
        active=draw(st.integers(1, experts)) if experts else 0,
        window=draw(st.sampled_from([None, None, 512, 4096])) if sliding else None,
    )


@st.composite
def shapes(draw: st.DrawFn, sliding: bool = True) -> Shape:
    """A decoder of a few different layers."""
    return Shape(
        layers=tuple(draw(st.lists(layers(sliding), min_size=1, max_size=4))),
        hidden=draw(st.integers(1, 128)) * 64,
        vocabulary=draw(st.integers(1, 200_000)),
        tied=draw(st.booleans()),
        final=draw(st.integers(0, 8192)),
    )


ratios = st.floats(0.01, 0.99)
keeps = st.builds(Keep, act=ratios, kv=ratios)
contexts = st.integers(1, 1_000_000)
batches = st.integers(1, 64)
dtypes = st.sampled_from(["float32", "bfloat16", "fp8", "int4", "4.25"])
precisions = st.builds(Precision, weight=dtypes, kv=dtypes, rest=dtypes)
