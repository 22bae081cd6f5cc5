"""A cell's stretch of pixels is where `span` finds the cell."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headscope.families.grid import Axis


@given(st.integers(1, 3000), st.integers(1, 80))
def test_stretches_of_a_proportional_axis_tile_the_side(pixels: int, cells: int) -> None:
    axis = Axis.proportional(pixels, cells)
    stretches = [axis.stretch(cell) for cell in range(cells)]
    assert stretches[0][0] == 0 and stretches[-1][1] == pixels
    assert all(left[1] == right[0] for left, right in pairwise(stretches))
    middle = [(low + high) / 2 for low, high in stretches]
    assert [list(axis.span(point, point)) for point in middle] == [[cell] for cell in range(cells)]


def test_padding_reaches_beyond_the_page() -> None:
    assert Axis(pixels=100, cells=2, num=1, shift=10, den=60).stretch(0) == (-10, 50)


def test_a_cell_made_from_several_units_stretches_over_all_of_them() -> None:
    axis = Axis(pixels=40, cells=2, num=4, den=40, reads=(((0, 2), (1, 3)),))
    assert axis.stretch(0) == (0, 30) and axis.stretch(1) == (10, 40)
