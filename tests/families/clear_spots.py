"""Clear spots: places in a picture whose change stays, after resampling, inside the cells that it lies in.

Families with a base tile see a picture at two sizes, so the middle of a fine cell may lie at the border of a base cell,
where the resampling filter carries it over. A clear spot keeps the filter's reach away from every border that it does
not cross.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from PIL import Image

from headscope.families import Axis, Grid, Picture
from headscope.page import Box
from tests.families.locality import Images, changed, embeds, mapped, middle, spotted
from tests.families.tiny_llava import PATCH

BICUBIC, BILINEAR = 2, 1  # how many pixels of the coarser side either filter reads around a point

Prompt = Callable[[Images], Any]


def prompt(processor: Any, *, together: bool = False, between: str = " and ") -> Prompt:
    """Give a function from pictures to the processor's output for one prompt.

    together: hand them over as one prompt's several. between: the text between two of them.
    """

    def make(images: Images) -> Any:
        pages = [Image.fromarray(image) for image in images]
        words = "Read " + between.join(["<image>"] * len(pages)) + " now."
        return processor(images=[pages] if together else pages, text=words, return_tensors="pt")

    return make


def check_both(model: Any, make: Prompt, images: Images, pictures: Sequence[Picture], reach: int = BICUBIC) -> int:
    """Assert that a clear spot in the middle of each fine and of each base cell changes exactly the mapped positions.

    Compared are the whole prompt's vectors at the language model's entry: the positions that differ in any bit are
    those of the fine and the base cells together that the mapping gives for the spot. Every cell whose centre is on the
    page must have such a spot. Gives the number of spots.
    """
    before, tried = embeds(model, make(images)), 0
    for index, (image, picture) in enumerate(zip(images, pictures, strict=True)):
        for box in clear_spots(picture, reach):
            after = [*images[:index], spotted(image, box), *images[index + 1 :]]
            assert changed(before, embeds(model, make(after))) == mapped(picture, box), (index, box)
            tried += 1
    return tried


def check_lines(model: Any, make: Prompt, images: Images, pictures: Sequence[Picture]) -> int:
    """Assert for each single row and column of pixels that it changes exactly the fine cells that the mapping gives.

    For pictures that the fine grid sees without resampling: no filter spills there, and an error of one pixel shows.
    Compared are all positions but the base cells', as in check_both. Gives the number of cells changed, all together.
    """
    before, seen = embeds(model, make(images)), 0
    for index, (image, picture) in enumerate(zip(images, pictures, strict=True)):
        height, width, _ = image.shape
        base = set() if picture.base is None else set(picture.base.positions.flatten().tolist())
        rows = [(0, y, width, y + 1) for y in range(height)]
        for box in [*rows, *((x, 0, x + 1, height) for x in range(width))]:
            after = [*images[:index], spotted(image, box), *images[index + 1 :]]
            fine = [position for position in changed(before, embeds(model, make(after))) if position not in base]
            assert fine == picture.fine.find(box).tolist(), (index, box)
            seen += len(fine)
    return seen


def clear_spots(picture: Picture, reach: int) -> Iterator[Box]:
    """Give a clear spot for each cell, fine and base, whose centre is on the page."""
    grids = [picture.fine] + ([picture.base] if picture.base else [])
    for own in grids:
        ys = _stretches(own.y, [grid.y for grid in grids], reach)
        xs = _stretches(own.x, [grid.x for grid in grids], reach)
        yield from ((x0, y0, x1, y1) for y0, y1 in ys for x0, x1 in xs)


def _stretches(own: Axis, axes: Sequence[Axis], reach: int) -> list[tuple[int, int]]:
    units = own.reads[0] if own.reads else [(cell, cell) for cell in range(own.cells)]
    middles = [middle(own, *unit) for unit in units]
    return [_clear(low, high, axes, reach) for low, high in middles if 0 <= low < high]


def _clear(low: int, high: int, axes: Sequence[Axis], reach: int) -> tuple[int, int]:
    """Give the longest stretch within [low, high) that is clear on all axes."""
    for length in range(high - low, 0, -1):
        for start in range(low, high - length + 1):
            if all(_stays(axis, start, start + length, reach) for axis in axes):
                return start, start + length
    raise AssertionError(f"no clear spot in {low}..{high}: give the picture more pixels")


def _stays(axis: Axis, low: int, high: int, reach: int) -> bool:
    resampled = axis.den / axis.num / (1 if axis.reads else PATCH)
    spill = reach * max(resampled, 1)
    return axis.span(low, high) == axis.span(max(low - spill, 0), min(high + spill, axis.pixels))


def cells(grid: Grid) -> tuple[int, int]:
    """Give a grid's rows and columns."""
    rows, columns = grid.positions.shape
    return rows, columns
