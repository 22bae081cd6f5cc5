"""Grids: boxes to cells, at the borders and exactly."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headscope.families import Axis, Grid

TWENTY = Axis.proportional(560, 20)


def grid(height: int, width: int, rows: int, columns: int) -> Grid:
    positions = torch.arange(rows * columns).reshape(rows, columns)
    return Grid(Axis.proportional(height, rows), Axis.proportional(width, columns), positions)


@pytest.mark.parametrize(
    ("box", "cells"),
    [
        ((-5, -3, 40, 20), [0, 1]),
        ((600, 460, 700, 500), []),
        ((-40, -40, -5, -5), []),
        ((550, 550, 900, 900), [399]),
        ((-20, 0, 0, 28), []),
        ((560, 0, 570, 28), []),
        ((-math.inf, -math.inf, math.inf, 1), list(range(20))),
    ],
)
def test_boxes_are_clipped_to_the_page_and_a_box_outside_it_has_no_cell(box, cells):
    assert grid(560, 560, 20, 20).find(box).tolist() == cells


@pytest.mark.parametrize(
    ("box", "cells"),
    [
        ((0, 0, 28, 28), [0]),
        ((28, 28, 56, 56), [21]),
        ((10, 10, 10, 10), [0]),
        ((28, 28, 28, 28), [21]),
        ((0, 0, 0, 0), [0]),
        ((0, 0, 28.001, 28), [0, 1]),
        ((27.999, 0, 28, 28), [0]),
    ],
)
def test_a_box_is_half_open_and_an_empty_one_has_the_cell_it_lies_in(box, cells):
    assert grid(560, 560, 20, 20).find(box).tolist() == cells


def test_a_resized_page_is_mapped_by_its_own_grid():
    found = grid(1080, 1920, 26, 47).find((960, 540, 1100, 580))
    assert found.tolist() == [634, 635, 636, 637]
    assert found.dtype == torch.int64


def test_an_edge_is_exact_where_floats_round_over_it():
    below = 300 / 7  # as a float a hair below the third cell's edge
    assert below * 7 / 100 == 3.0
    assert Axis.proportional(100, 7).span(below, below) == range(2, 3)


@given(st.integers(1, 4000), st.integers(1, 300), st.tuples(st.floats(-50, 4050), st.floats(-50, 4050)).map(sorted))
def test_a_cell_is_touched_if_and_only_if_it_shares_pixels_with_the_stretch(pixels, cells, stretch):
    low, high = stretch
    edges = [Fraction(cell * pixels, cells) for cell in range(cells + 1)]
    clipped = max(Fraction(low), Fraction(0)), min(Fraction(high), Fraction(pixels))
    shared = [cell for cell in range(cells) if max(edges[cell], clipped[0]) < min(edges[cell + 1], clipped[1])]
    if low < high:
        assert list(Axis.proportional(pixels, cells).span(low, high)) == shared


@given(st.integers(1, 4000), st.integers(1, 300), st.floats(0, 1, exclude_max=True))
def test_a_point_of_the_page_lies_in_one_cell(pixels, cells, share):
    point = share * pixels
    (cell,) = Axis.proportional(pixels, cells).span(point, point) if point < pixels else (0,)
    assert point >= pixels or cell * pixels <= Fraction(point) * cells < (cell + 1) * pixels


def test_what_was_cropped_away_has_no_cell():
    cropped = Axis(100, cells=2, num=4, shift=-100, den=100)  # four cells of 25 pixels, the first and the last cropped
    assert [cropped.span(low, low + 25) for low in (0, 25, 50, 75)] == [range(0), range(1), range(1, 2), range(2, 2)]


def test_cells_made_from_several_units_are_found_by_each_of_them():
    shrunk = Axis(40, cells=2, num=4, den=40, reads=(((0, 2), (1, 3)),))
    assert [list(shrunk.span(low, low + 10)) for low in (0, 10, 30)] == [[0], [0, 1], [1]]


@pytest.mark.parametrize("stretch", [(2, 1), (math.nan, 1), (1, math.nan)])
def test_a_stretch_that_ends_before_it_begins_is_refused(stretch):
    with pytest.raises(ValueError, match="`high` must not be below `low`"):
        TWENTY.span(*stretch)
