"""LLaVA-OneVision: shrunk fine grids, and several pictures of one tile each; the mapping is exact, cell by cell."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from headscope.families import Axis, attention_modules, detect, geometry
from headscope.families.llava_onevision import LLAVA_ONEVISION, shrunk
from tests.families.clear_spots import BILINEAR, cells, check_both, check_lines, prompt
from tests.families.locality import local, mapped, noise
from tests.families.tiny_llava import Tiny, llava_onevision


@cache
def tiny(tile: int = 28, grid: int = 6, limit: int = 9) -> tuple[Any, Any]:
    """Give the local model and the processor, made to resize bilinearly: 12 fine cells may share 2 base cells."""
    model, processor = llava_onevision(tile, grid, limit)
    processor.image_processor.resample = Image.Resampling.BILINEAR
    return local(model), processor


@cache
def full_size() -> Tiny:
    """Give a model and processor with the published tiles: 384 pixels, 27 x 27 cells, at most 9 tiles of cells."""
    return llava_onevision(384)


def lay(tiny: Tiny, *sizes: tuple[int, int], together: bool = False) -> tuple[Any, list[Any]]:
    """Give a prompt with blank pictures of these sizes, and their mapping."""
    model, processor = tiny
    inputs = prompt(processor, together=together)([np.zeros((*size, 3), np.uint8) for size in sizes])
    return inputs, LLAVA_ONEVISION.pictures(model.config, processor, inputs, sizes)


@pytest.mark.parametrize(
    ("size", "grid", "tokens"),
    [
        ((480, 640), (40, 54), 2929),
        ((100, 300), (9, 27), 981),
        ((1800, 2400), (70, 93), 7309),
        ((2300, 2300), (81, 81), 7371),
        ((3000, 800), (162, 44), 8019),
    ],
)
def test_the_grids_have_the_published_sizes(size: tuple[int, int], grid: tuple[int, int], tokens: int) -> None:
    inputs, (picture,) = lay(full_size(), size)
    assert cells(picture.fine) == grid
    assert cells(picture.base) == (27, 27)
    assert picture.run[1] - picture.run[0] == tokens == (inputs["input_ids"] == 1536).sum()


def test_a_published_tile_ends_in_six_pixels_without_a_cell() -> None:
    """A page of 2304 x 2304 fills 6 x 6 tiles pixel by pixel; a shrunk cell reads two of its 162 rows."""
    _, (picture,) = lay(full_size(), (2304, 2304))
    patches, pairs = picture.fine.y.reads
    assert patches[26:28] == ((364, 377), (384, 397))
    assert pairs == tuple((2 * cell, 2 * cell + 1) for cell in range(81))
    assert list(picture.fine.y.span(378, 384)) == []
    assert list(picture.fine.y.span(377, 385)) == [13]
    assert list(picture.base.y.span(378 * 6, 384 * 6)) == []


@pytest.mark.parametrize(
    ("before", "after"), [(121, 70), (162, 93), (162, 81), (12, 10), (9, 3), (7, 6), (5, 5), (6, 1)]
)
def test_a_shrunk_cell_reads_what_changes_it(before: int, after: int) -> None:
    """Each old row in turn is changed in a map like the model's; from 9 to 3 two rows of three are read by nobody."""
    axis = shrunk(Axis.proportional(before, before), after)
    rows = torch.randn(1, 4, before, 3, generator=torch.Generator().manual_seed(0))
    shrink = lambda rows: torch.nn.functional.interpolate(rows, [after, 2], mode="bilinear")  # noqa: E731
    whole = shrink(rows)
    for row in range(before):
        other = rows.clone()
        other[:, :, row] += 1
        touched = (shrink(other) != whole).any(3).any(1)[0].nonzero()[:, 0].tolist()
        assert list(axis.span(row, row + 1)) == touched
    assert (before, after) != (9, 3) or [list(axis.span(row, row + 1)) for row in range(4)] == [[], [0], [], []]


@pytest.mark.parametrize(
    ("tile", "size", "grid", "spots"),
    [
        (28, (200, 240), (5, 6), 12 * 10 + 4),
        (28, (400, 110), (10, 3), 12 * 4 + 4),
        (28, (260, 420), (4, 7), 8 * 12 + 4),
        (28, (60, 100), (4, 8), 4 * 8 + 4),
        (34, (110, 400), (3, 10), 4 * 12 + 4),
        (34, (60, 100), (4, 6), 4 * 6 + 4),
    ],
)
def test_a_spot_changes_exactly_its_fine_and_base_cells(
    tile: int, size: tuple[int, int], grid: tuple[int, int], spots: int
) -> None:
    """A shrunk grid (the first three, the fifth) gets a spot in each cell it is made from; tiles of 34 have a rest."""
    model, processor = tiny(tile)
    make, image = prompt(processor), noise(*size)
    pictures = LLAVA_ONEVISION.pictures(model.config, processor, make([image]), [size])
    assert cells(pictures[0].fine) == grid
    assert check_both(model, make, [image], pictures, BILINEAR) == spots


def test_so_it_does_with_the_stock_filter() -> None:
    model, processor = llava_onevision(grid=2)
    make, image = prompt(processor), noise(120, 100)
    pictures = LLAVA_ONEVISION.pictures(model.config, processor, make([image]), [(120, 100)])
    assert check_both(local(model), make, [image], pictures) == 20


def test_a_grid_is_shrunk_to_the_configs_own_limit() -> None:
    """Three tiles by three where one is allowed: six rows become two, and four of the six are read by no cell."""
    model, processor = tiny(grid=3, limit=1)
    make, image = prompt(processor), noise(170, 168)
    (picture,) = LLAVA_ONEVISION.pictures(model.config, processor, make([image]), [(170, 168)])
    assert cells(picture.fine) == (2, 2)
    assert check_both(model, make, [image], [picture], BILINEAR) == 36 + 4
    assert [len(picture.fine.find((0, y, 168, y + 2))) for y in range(10, 170, 28)] == [0, 2, 0, 0, 2, 0]


def test_several_pictures_of_one_prompt_are_one_padded_tile_each() -> None:
    """The processor gets them as `[[a, b, c]]`; a newline ends each run."""
    model, processor = llava_onevision(56)
    sizes = [(120, 200), (260, 100), (90, 90)]
    make, images = prompt(processor, together=True, between=""), [noise(*size) for size in sizes]
    pictures = LLAVA_ONEVISION.pictures(model.config, processor, make(images), sizes)
    assert check_both(local(model), make, images, pictures) == 8 + 8 + 16
    assert [picture.run[1] - picture.run[0] for picture in pictures] == [17, 17, 17]
    assert all(picture.base is None for picture in pictures)
    assert [max(mapped(picture, (0, 0, 300, 300))) for picture in pictures] == [
        picture.run[0] + last for picture, last in zip(pictures, (15, 14, 15), strict=True)
    ]


def test_a_padded_tile_is_met_to_the_pixel() -> None:
    """Pictures whose longer side is the tile's are padded without resampling."""
    model, processor = llava_onevision(34)
    make, images = prompt(processor, together=True), [noise(34, 21), noise(17, 34)]
    pictures = LLAVA_ONEVISION.pictures(model.config, processor, make(images), [(34, 21), (17, 34)])
    assert check_lines(local(model), make, images, pictures) == 188


def test_several_pictures_given_one_by_one_have_tiles_each() -> None:
    """`images=[a, b]` counts, in the processor and the model alike, as a prompt for each."""
    model, processor = tiny()
    sizes = [(60, 100), (70, 50)]
    make, images = prompt(processor), [noise(*size) for size in sizes]
    pictures = LLAVA_ONEVISION.pictures(model.config, processor, make(images), sizes)
    assert [cells(picture.fine) for picture in pictures] == [(4, 8), (6, 4)]
    assert check_both(model, make, images, pictures, BILINEAR) == 36 + 28


@pytest.mark.parametrize("sizes", [[(60, 100)], [(60, 100), (100, 60)]])
def test_a_chat_template_hands_the_pictures_over_as_one_prompts(sizes: list[tuple[int, int]]) -> None:
    model, processor = tiny()
    pages = [{"type": "image", "image": Image.fromarray(noise(*size))} for size in sizes]
    chat = [{"role": "user", "content": [*pages, {"type": "text", "text": "Read the text."}]}]
    inputs = processor.apply_chat_template(chat, tokenize=True, return_dict=True, return_tensors="pt")
    pictures = LLAVA_ONEVISION.pictures(model.config, processor, inputs, sizes)
    assert [picture.base is None for picture in pictures] == [len(sizes) > 1] * len(sizes)


def test_it_refuses_what_does_not_fit() -> None:
    (model, processor), sizes = tiny(), [(60, 100), (100, 60)]
    inputs, _ = lay((model, processor), *sizes, together=True)
    find = lambda inputs, sizes=sizes: LLAVA_ONEVISION.pictures(model.config, processor, inputs, sizes)  # noqa: E731
    with pytest.raises(ValueError, match="`sizes` must give one size"):
        find(inputs, sizes[:1])
    with pytest.raises(ValueError, match="as the processor saw them"):
        find(inputs, sizes[::-1])
    with pytest.raises(ValueError, match="one placeholder run for each"):
        find({**inputs, "input_ids": inputs["input_ids"][:, :-8]})
    with pytest.raises(ValueError, match="one prompt"):
        find({**inputs, "input_ids": inputs["input_ids"].repeat(2, 1)})
    with pytest.raises(ValueError, match="`batch_num_images`"):
        find({**inputs, "batch_num_images": torch.tensor([2, 1])})


def test_it_refuses_a_processor_that_is_not_the_models() -> None:
    _, processor = llava_onevision()
    inputs, size = prompt(processor)([noise(60, 100)]), [(60, 100)]
    with pytest.raises(ValueError, match="must be the tower's 56 pixels"):
        LLAVA_ONEVISION.pictures(llava_onevision(56)[0].config, processor, inputs, size)
    with pytest.raises(ValueError, match="`image_grid_pinpoints` must be the same"):
        LLAVA_ONEVISION.pictures(llava_onevision(grid=1)[0].config, processor, inputs, size)
    processor.vision_feature_select_strategy = "default"
    with pytest.raises(ValueError, match="`num_image_tokens` must be"):
        LLAVA_ONEVISION.pictures(llava_onevision()[0].config, processor, inputs, size)


def test_it_refuses_video() -> None:
    model, processor = tiny()
    inputs = processor(videos=[np.stack([noise(60, 100)] * 4)], text="Read <video>", return_tensors="pt")
    with pytest.raises(ValueError, match="`llava_onevision` is handled for pictures only, got video"):
        LLAVA_ONEVISION.pictures(model.config, processor, inputs, [])


def test_it_is_found_by_its_model_type_with_grouped_heads() -> None:
    model, _ = tiny()
    assert detect(model.config) is LLAVA_ONEVISION
    assert LLAVA_ONEVISION.frames is None
    assert geometry(model.config).heads == 2 * geometry(model.config).kv_heads
    assert len(attention_modules(model)) == 3
