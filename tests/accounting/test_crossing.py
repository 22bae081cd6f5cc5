"""The crossing in time: the paper's equation, and its laws."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headscope as hs
from headscope.accounting.cell import Cell
from headscope.accounting.crossing import byte_ms, gap_growth_ms, latency_crossing
from headscope.accounting.crossover import Keep, crossover
from headscope.accounting.precision import Precision
from headscope.accounting.shape import Shape
from headscope.accounting.step import step_bytes
from tests.accounting.shapes import batches, keeps, precisions, shapes

K = 1024
costs = st.floats(0, 5)
bandwidths = st.floats(0.1, 10)


def times(
    shape: Shape, precision: Precision, batch: int, keep: Keep, tb_per_s: float, at: float
) -> tuple[float, float]:
    """Byte times of both branches at a context that need not be whole, ms: projection, KV."""
    low = math.floor(at)
    found = []
    for act, kv in ((keep.act, 1.0), (1.0, keep.kv)):
        ends = [
            step_bytes(shape, precision, context, batch=batch, keep_act=act, keep_kv=kv).total
            for context in (low, low + 1)
        ]
        found.append(byte_ms(ends[0] + (ends[1] - ends[0]) * (at - low), tb_per_s))
    return found[0], found[1]


@given(shapes(sliding=False), precisions, batches, keeps, bandwidths, costs, costs)
def test_it_is_the_papers_equation(
    shape: Shape, precision: Precision, batch: int, keep: Keep, tb_per_s: float, projection: float, kv: float
) -> None:
    found = latency_crossing(shape, precision, batch, keep, tb_per_s=tb_per_s, projection_ms=projection, kv_ms=kv)
    start = crossover(shape, precision, batch, keep)
    assert found is not None and start is not None
    expected = start - (projection - kv) / gap_growth_ms(shape, precision, batch, keep, tb_per_s)
    assert found == pytest.approx(max(0.0, expected), rel=1e-6, abs=1e-6 * (1 + start))


@given(shapes(), precisions, batches, keeps, bandwidths, costs, costs)
def test_both_branches_take_the_same_time_there(
    shape: Shape, precision: Precision, batch: int, keep: Keep, tb_per_s: float, projection: float, kv: float
) -> None:
    """Sliding layers included."""
    found = latency_crossing(shape, precision, batch, keep, tb_per_s=tb_per_s, projection_ms=projection, kv_ms=kv)
    if found is None or found < 1:
        return
    first, second = times(shape, precision, batch, keep, tb_per_s, found)
    assert first + projection == pytest.approx(second + kv, rel=1e-6)


@given(shapes(sliding=False), precisions, batches, keeps, bandwidths, costs, costs)
def test_a_dearer_projection_kernel_brings_it_nearer_and_a_dearer_selection_puts_it_off(
    shape: Shape, precision: Precision, batch: int, keep: Keep, tb_per_s: float, first: float, second: float
) -> None:
    def at(projection: float, kv: float) -> float:
        found = latency_crossing(shape, precision, batch, keep, tb_per_s=tb_per_s, projection_ms=projection, kv_ms=kv)
        assert found is not None
        return found

    low, high = sorted((first, second))
    assert at(high, 0.0) <= at(low, 0.0) <= at(0.0, 0.0) <= at(0.0, low) <= at(0.0, high)
    assert at(low, low) == pytest.approx(crossover(shape, precision, batch, keep), rel=1e-9)


def test_the_papers_a100_and_an_h200() -> None:
    """s is about 0.06 ms a K on an A100, where a millisecond moves a crossing 17K; on an H200 it moves it 46K."""
    account = hs.account("llama-3.1-8b")
    growth = {
        bandwidth: K * gap_growth_ms(account.shape, account.precision, 1, Keep(0.5, 0.3), bandwidth)
        for bandwidth in (0.78 * 2.039, 4.25)
    }
    assert [round(each, 3) for each in growth.values()] == [0.059, 0.022]
    assert [round(1 / each) for each in growth.values()] == [17, 45]


def test_a_branch_that_skips_nothing_never_overtakes() -> None:
    account = hs.account("llama-3.1-8b")
    costs = {"tb_per_s": 4.0, "projection_ms": 0.0, "kv_ms": 0.0}
    assert latency_crossing(account.shape, account.precision, 1, Keep(0.5, 1.0), **costs) is None
    costs["projection_ms"] = 1e6
    assert latency_crossing(account.shape, account.precision, 1, Keep(0.5, 1.0), **costs) == 0.0


def test_a_bandwidth_of_nothing_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="`tb_per_s` must be a bandwidth above 0, got 0"):
        byte_ms(1.0, 0)


def test_a_cell_knows_its_branch_and_refuses_what_is_no_part() -> None:
    branches = [Cell("a", 1000, act, kv).branch for act, kv in ((1, 1), (1, 0.3), (0.5, 1), (0.5, 0.3))]
    assert branches == ["dense", "kv", "projection", "both"]
    assert Cell("a", 1000, 0.5, 0.3).tokens == 300
    with pytest.raises(ValueError, match="`keep_kv` must be a part that is kept"):
        Cell("a", 1000, 0.5, 0)
    with pytest.raises(ValueError, match="`context` must be a whole number above 0, got 0"):
        Cell("a", 0)
