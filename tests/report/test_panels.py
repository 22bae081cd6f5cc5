"""Labels beside lines keep their order and do not overlap."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from headscope.report.panels import scale_up, spread


@given(st.lists(st.floats(0, 1000), max_size=8))
def test_neighbours_are_a_gap_apart_in_the_same_order(places: list[float]) -> None:
    moved = spread(places, 10)
    ordered = sorted(range(len(places)), key=lambda at: (places[at], moved[at]))
    for below, above in itertools.pairwise(ordered):
        assert moved[above] - moved[below] >= 10 - 1e-6
    assert sum(moved) == pytest.approx(sum(places), abs=1e-6)


def test_places_that_are_far_apart_stay() -> None:
    assert spread([50, 0, 100], 10) == [50, 0, 100]
    assert spread([0, 1, 100], 10) == [-4.5, 5.5, 100]


@pytest.mark.parametrize("values", [[3.5, 60], [4.0], [0.03, 900], [1.0, 10.0]])
def test_the_upright_axis_goes_from_one_round_number_to_another_around_all_values(values: list[float]) -> None:
    axes = Figure().add_subplot()
    scale_up(axes, values)
    ticks = [float(label.get_text()) for label in axes.get_yticklabels()]
    assert ticks[0] <= min(values) and max(values) <= ticks[-1]
    low, high = axes.get_ylim()
    assert low < ticks[0] and ticks[-1] < high
