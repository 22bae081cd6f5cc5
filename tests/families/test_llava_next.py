"""LLaVA-NeXT: base tile, unpadded fine grid, newlines; the mapping is exact, cell by cell."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from headscope.families import attention_modules, geometry, language_model
from headscope.families.llava_next import LLAVA_NEXT, Tile, tiled
from tests.families.clear_spots import cells, check_both, check_lines, prompt
from tests.families.locality import changed, embeds, local, mapped, noise, spotted
from tests.families.tiny_llava import Tiny, llava_next_mistral, llava_next_vicuna

PUBLISHED = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]


@cache
def tiny(tile: int = 28) -> tuple[Any, Any]:
    """Give the local model and the processor."""
    model, processor = llava_next_mistral(tile)
    return local(model), processor


@cache
def full_size() -> Tiny:
    """Give a model and processor with the published tiles: 336 pixels, 24 x 24 cells."""
    return llava_next_vicuna(336, PUBLISHED)


def lay(tiny: Tiny, *sizes: tuple[int, int], between: str = " and ") -> tuple[Any, list[Any]]:
    """Give a prompt with blank pictures of these sizes, and their mapping."""
    model, processor = tiny
    inputs = prompt(processor, between=between)([np.zeros((*size, 3), np.uint8) for size in sizes])
    return inputs, LLAVA_NEXT.pictures(model.config, processor, inputs, sizes)


@pytest.mark.parametrize(
    ("size", "grid", "tokens"),
    [
        ((480, 640), (36, 48), 2340),
        ((100, 300), (16, 48), 1360),
        ((30, 40), (24, 32), 1368),
        ((20, 30), (24, 36), 1464),
        ((1000, 100), (72, 8), 1224),
        ((337, 336), (24, 24), 1176),
        ((1, 200), (0, 48), 576),
    ],
)
def test_the_grids_have_the_published_sizes(size: tuple[int, int], grid: tuple[int, int], tokens: int) -> None:
    inputs, (picture,) = lay(full_size(), size)
    assert cells(picture.fine) == grid
    assert cells(picture.base) == (24, 24)
    assert picture.run[1] - picture.run[0] == tokens == (inputs["input_ids"] == 1536).sum()


@pytest.mark.parametrize(
    ("size", "first", "resized", "pad"),
    [
        ((480, 640), (6, 0), (504, 672), (84, 0)),
        ((100, 300), (4, 0), (225, 672), (55, 0)),
        ((30, 40), (0, 8), (336, 448), (0, 112)),
        ((1000, 100), (0, 8), (1008, 101), (0, 117)),
    ],
)
def test_the_picture_is_fitted_pasted_and_freed_of_its_padding(
    size: tuple[int, int], first: tuple[int, int], resized: tuple[int, int], pad: tuple[int, int]
) -> None:
    fine = lay(full_size(), size)[1][0].fine
    for axis, pixels, cell, length, paste in zip((fine.y, fine.x), size, first, resized, pad, strict=True):
        assert axis.reads[0][0] == (cell * 14, cell * 14 + 13)
        assert (axis.num, axis.shift, axis.den) == (length, paste * pixels, pixels)


def test_a_row_of_cells_ends_in_a_newline() -> None:
    _, (picture,) = lay(full_size(), (480, 640))
    start, stop = picture.run
    assert picture.base.positions.flatten().tolist() == list(range(start, start + 576))
    assert picture.fine.find((630, 470, 640, 480)).tolist() == [start + 576 + 35 * 49 + 47] == [start + 2338]
    newlines = set(range(start, stop)) - set(mapped(picture, (0, 0, 640, 480)))
    assert newlines == set(range(start + 576 + 48, stop, 49))


def test_the_mapping_knows_the_padding_where_a_proportional_one_errs() -> None:
    _, (flat,) = lay(full_size(), (100, 300))
    _, (tall,) = lay(full_size(), (1000, 100))
    assert list(flat.fine.y.span(50, 60)) == [7, 8, 9]
    assert list(tall.fine.x.span(50, 70)) == [3, 4, 5]


def test_a_picture_without_a_row_of_fine_cells_has_base_cells_only() -> None:
    _, (picture,) = lay(full_size(), (1, 200))
    assert picture.fine.find((0, 0, 200, 1)).tolist() == []
    assert len(picture.base.find((0, 0, 200, 1))) == 576


@pytest.mark.parametrize("tile", [Tile(336, 14), Tile(28, 14), Tile(34, 14)])
def test_the_padding_goes_as_in_the_models_own_unpad_image(tile: Tile) -> None:
    from transformers.models.llava_next.modeling_llava_next import unpad_image

    sizes = np.random.default_rng(0).integers(1, 900, (60, 2)).tolist()
    for rows, columns in [(1, 2), (2, 1), (2, 2), (3, 1), (1, 3), (4, 6)]:
        whole = torch.arange(rows * tile.cells * columns * tile.cells).reshape(1, rows * tile.cells, -1)
        for size in map(tuple, sizes):
            y, x = tiled(size, (rows * tile.side, columns * tile.side), tile)
            kept = unpad_image(whole, size)[0]
            assert (y.cells, x.cells) == tuple(kept.shape)
            if kept.numel():
                row, column = divmod(kept[0, 0].item(), whole.shape[-1])
                edge = lambda cell: cell // tile.cells * tile.side + cell % tile.cells * tile.patch  # noqa: E731
                assert (y.reads[0][0][0], x.reads[0][0][0]) == (edge(row), edge(column))


@pytest.mark.parametrize("tile", [28, 34])
@pytest.mark.parametrize(
    ("size", "spots"),
    [
        ((100, 120), 16 + 4),
        ((120, 100), 16 + 4),
        ((240, 70), 12 + 4),
        ((66, 250), 12 + 4),
        ((301, 290), 16 + 4),
        ((40, 40), 16 + 4),
        ((57, 113), 8 + 4),
    ],
)
def test_a_spot_changes_exactly_its_fine_and_base_cells(size: tuple[int, int], spots: int, tile: int) -> None:
    """Wide, tall and square pictures, enlarged and reduced; in tiles of 34 pixels the last 6 belong to no cell."""
    model, processor = tiny(tile)
    make, image = prompt(processor), noise(*size)
    pictures = LLAVA_NEXT.pictures(model.config, processor, make([image]), [size])
    assert check_both(model, make, [image], pictures) == spots


@pytest.mark.parametrize(
    ("tile", "size", "seen"),
    [(28, (56, 43), 4 * 99), (28, (45, 56), 4 * 101), (34, (68, 51), 4 * (56 + 45)), (34, (68, 68), 4 * 112)],
)
def test_the_fine_cells_are_met_to_the_pixel(tile: int, size: tuple[int, int], seen: int) -> None:
    """Pictures that fill their tiles from edge to edge, without resampling; of a tile of 34 pixels 28 are seen."""
    model, processor = tiny(tile)
    make, image = prompt(processor), noise(*size)
    pictures = LLAVA_NEXT.pictures(model.config, processor, make([image]), [size])
    assert check_lines(model, make, [image], pictures) == seen


@pytest.mark.parametrize("between", [" and ", ""])
def test_each_of_several_pictures_changes_its_own_run_only(between: str) -> None:
    model, processor = tiny()
    sizes = [(100, 120), (240, 70), (66, 250)]
    make, images = prompt(processor, between=between), [noise(*size, seed) for seed, size in enumerate(sizes)]
    pictures = LLAVA_NEXT.pictures(model.config, processor, make(images), sizes)
    assert check_both(model, make, images, pictures) == 20 + 16 + 16
    for picture in pictures:
        assert set(mapped(picture, (0, 0, 1000, 1000))) < set(range(*picture.run))
    runs = [position for picture in pictures for position in range(*picture.run)]
    assert len(runs) == len(set(runs))


def test_what_lies_in_the_rest_of_a_tile_has_no_fine_cell() -> None:
    """Tiles of 34 pixels have 2 cells of 14 a side; a picture of 68 x 68 fills 2 x 2 of them pixel by pixel."""
    model, processor = tiny(34)
    make, image, box = prompt(processor), noise(68, 68), (33, 6, 34, 10)
    (picture,) = LLAVA_NEXT.pictures(model.config, processor, make([image]), [(68, 68)])
    assert picture.fine.find(box).tolist() == []
    seen = changed(embeds(model, make([image])), embeds(model, make([spotted(image, box)])))
    assert seen == picture.base.find(box).tolist() != []


@pytest.mark.parametrize(("build", "kv_heads"), [(llava_next_vicuna, 4), (llava_next_mistral, 2)])
def test_vicuna_is_multi_head_and_mistral_is_grouped(build: Any, kv_heads: int) -> None:
    model, _ = build()
    sizes = geometry(model.config)
    assert (sizes.layers, sizes.heads, sizes.kv_heads, sizes.head_dim) == (3, 4, kv_heads, 16)
    assert {module.k_proj.out_features for module in attention_modules(model)} == {kv_heads * 16}
    assert language_model(model) is model.model.language_model


def test_it_refuses_pictures_that_are_not_those_of_the_prompt() -> None:
    (model, processor), sizes = tiny(), [(100, 120), (240, 70)]
    inputs, _ = lay((model, processor), *sizes)
    find = lambda inputs, sizes: LLAVA_NEXT.pictures(model.config, processor, inputs, sizes)  # noqa: E731
    with pytest.raises(ValueError, match="`sizes` must give one size"):
        find(inputs, sizes[:1])
    with pytest.raises(ValueError, match=r"as the processor saw them, \[\(100, 120\), \(240, 70\)\]"):
        find(inputs, sizes[::-1])
    with pytest.raises(ValueError, match="one placeholder run for each"):
        find({**inputs, "input_ids": inputs["input_ids"][:, :-8]}, sizes)
    with pytest.raises(ValueError, match="one prompt"):
        find({**inputs, "input_ids": inputs["input_ids"].repeat(2, 1)}, sizes)
    with pytest.raises(ValueError, match="`llava_next` is handled for pictures only"):
        find({**inputs, "pixel_values_videos": inputs["pixel_values"]}, sizes)


def test_it_refuses_a_processor_that_is_not_the_models() -> None:
    model, processor = llava_next_mistral()
    find = lambda config: LLAVA_NEXT.pictures(config, processor, inputs, [(100, 120)])  # noqa: E731
    inputs, _ = lay((model, processor), (100, 120))
    with pytest.raises(ValueError, match="the processor's `size` and `crop_size` must be the tower's 56 pixels"):
        find(llava_next_mistral(56)[0].config)
    with pytest.raises(ValueError, match="`image_grid_pinpoints` must be the same in model and processor"):
        find(llava_next_mistral(28, [[28, 28]])[0].config)
    processor.vision_feature_select_strategy = "full"
    with pytest.raises(ValueError, match="`vision_feature_select_strategy`"):
        find(model.config)


def test_a_prompt_without_pictures_has_none() -> None:
    model, processor = tiny()
    assert LLAVA_NEXT.pictures(model.config, processor, processor(text="Read.", return_tensors="pt"), []) == []


def test_the_published_rule_compares_raw_pieces_and_frames_are_refused() -> None:
    assert LLAVA_NEXT.raw_pieces
    assert LLAVA_NEXT.frames is None
