"""LLaVA-1.5: one square grid; what the processor crops away has no cell; the mapping is exact, cell by cell."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from transformers import CLIPImageProcessor, LlavaImageProcessor
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.llava.image_processing_pil_llava import LlavaImageProcessorPil

from headscope.families import attention_modules, detect, geometry
from headscope.families.llava import LLAVA
from tests.families.clear_spots import cells, check_both, check_lines, prompt
from tests.families.locality import changed, embeds, local, noise, spotted
from tests.families.tiny_llava import llava_15

SQUARE = {"height": 56, "width": 56}
WIDE, TALL, LARGE, SMALL = (80, 120), (170, 60), (300, 320), (40, 45)


def both(kind: str, **settings: Any) -> list[Any]:
    """Give the torchvision and the PIL image processor with the same settings."""
    clip, llava = (CLIPImageProcessor, CLIPImageProcessorPil), (LlavaImageProcessor, LlavaImageProcessorPil)
    return [processor(**settings) for processor in (clip if kind == "clip" else llava)]


STOCK = both("clip", size={"shortest_edge": 56}, crop_size=SQUARE)
ODD = both("clip", size={"shortest_edge": 61}, crop_size=SQUARE)
SQUASHED = both("clip", size=SQUARE, do_center_crop=False)
PADDED = both("llava", size=SQUARE, do_center_crop=False, do_pad=True)
PADDED_AND_CROPPED = both("llava", size={"shortest_edge": 60}, crop_size=SQUARE, do_pad=True)
AS_IT_IS = both("clip", do_resize=False, crop_size=SQUARE)


@pytest.mark.parametrize("size", [WIDE, TALL, LARGE, SMALL], ids=["wide", "tall", "large", "small"])
@pytest.mark.parametrize(
    "settings",
    [*STOCK, *ODD, *SQUASHED, *PADDED, *PADDED_AND_CROPPED, *AS_IT_IS],
    ids=[
        f"{name}-{backend}"
        for name in ("stock", "odd", "squashed", "padded", "padded_and_cropped", "as_it_is")
        for backend in ("torchvision", "pil")
    ],
)
def test_a_spot_changes_exactly_its_cells(settings: Any, size: tuple[int, int]) -> None:
    model, processor = llava_15(settings)
    make, image = prompt(processor), noise(*size)
    pictures = LLAVA.pictures(model.config, processor, make([image]), [size])
    seen = 8 if settings.do_pad and size == TALL else 16  # a padded tall page lies in the two columns of the middle
    assert check_both(local(model), make, [image], pictures) == seen


@pytest.mark.parametrize("size", [WIDE, SMALL, (61, 57), (41, 99)], ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("settings", AS_IT_IS, ids=["torchvision", "pil"])
def test_a_crop_or_a_padding_of_an_odd_number_of_pixels_is_met_to_the_pixel(
    settings: Any, size: tuple[int, int]
) -> None:
    """The two backends round the padding of a page that is smaller than the crop differently."""
    model, processor = llava_15(settings)
    make, image = prompt(processor), noise(*size)
    pictures = LLAVA.pictures(model.config, processor, make([image]), [size])
    shown = min(size[0], 56), min(size[1], 56)
    assert check_lines(local(model), make, [image], pictures) == 4 * sum(shown)


def test_what_the_processor_crops_away_has_no_cell() -> None:
    """The stock processor keeps the columns 20 to 100 of a page of 80 x 120."""
    model, processor = llava_15()
    make, image, tower = prompt(processor), noise(*WIDE), local(model)
    (picture,) = LLAVA.pictures(model.config, processor, make([image]), [WIDE])
    before = embeds(tower, make([image]))
    for box in [(0, 0, 17, 80), (103, 0, 120, 80), (5, 30, 9, 40)]:
        assert picture.fine.find(box).tolist() == []
        assert changed(before, embeds(tower, make([spotted(image, box)]))) == []
    assert picture.fine.find((15, 0, 25, 4)).tolist() == [picture.run[0]]


def test_a_full_size_page_has_24_by_24_cells_of_its_middle() -> None:
    model, processor = llava_15(tile=336)
    size = (480, 640)
    (picture,) = LLAVA.pictures(model.config, processor, prompt(processor)([np.zeros((*size, 3), np.uint8)]), [size])
    assert cells(picture.fine) == (24, 24)
    assert picture.base is None
    assert picture.run[1] - picture.run[0] == 576
    assert picture.fine.find((80, 0, 100, 20)).tolist() == [picture.run[0]]
    assert picture.fine.find((540, 460, 640, 480)).tolist() == list(range(picture.run[1] - 1, picture.run[1]))
    assert picture.fine.find((0, 0, 80, 480)).tolist() == []


@pytest.mark.parametrize("between", [" and ", ""])
def test_each_of_several_pictures_changes_its_own_run_only(between: str) -> None:
    model, processor = llava_15()
    make, images = prompt(processor, between=between), [noise(*size) for size in (WIDE, TALL, LARGE)]
    pictures = LLAVA.pictures(model.config, processor, make(images), [WIDE, TALL, LARGE])
    assert check_both(local(model), make, images, pictures) == 48
    assert [stop - start for start, stop in (picture.run for picture in pictures)] == [16, 16, 16]


def test_the_strategy_full_keeps_the_class_token_in_front_of_the_cells() -> None:
    model, processor = llava_15()
    processor.vision_feature_select_strategy = model.config.vision_feature_select_strategy = "full"
    make, image = prompt(processor), noise(*WIDE)
    (picture,) = LLAVA.pictures(model.config, processor, make([image]), [WIDE])
    assert picture.run[1] - picture.run[0] == 17
    assert picture.fine.positions[0, 0] == picture.run[0] + 1
    assert check_both(local(model), make, [image], [picture]) == 16


def test_it_refuses_what_it_cannot_map() -> None:
    model, processor = llava_15()
    inputs = prompt(processor)([noise(*WIDE)])
    find = lambda inputs, sizes=(WIDE,), of=processor: LLAVA.pictures(model.config, of, inputs, sizes)  # noqa: E731
    with pytest.raises(ValueError, match="`sizes` must give one size"):
        find(inputs, [WIDE, TALL])
    with pytest.raises(ValueError, match="one placeholder run for each"):
        find({**inputs, "input_ids": inputs["input_ids"][:, :-8]})
    with pytest.raises(ValueError, match="one prompt"):
        find({**inputs, "input_ids": inputs["input_ids"].repeat(2, 1)})
    with pytest.raises(ValueError, match="`llava` is handled for pictures only"):
        find({**inputs, "pixel_values_videos": inputs["pixel_values"]})
    with pytest.raises(ValueError, match="Pixtral"):
        find({**inputs, "image_sizes": [[80, 120]]})
    for settings, message in [
        ({"do_pad": True}, "`do_pad`"),
        ({"size": {"shortest_edge": 56, "longest_edge": 90}}, "`size` must have `height` and `width`"),
        ({"size": {"shortest_edge": 56}, "do_center_crop": False}, "`sizes` must be those of the pictures that"),
    ]:
        of = llava_15(CLIPImageProcessor(**{"size": SQUARE, "crop_size": SQUARE} | settings))[1]
        with pytest.raises(ValueError, match=message):
            find(inputs, of=of)


def test_it_refuses_a_strategy_that_drops_a_cell() -> None:
    """'default' drops the first vector; in a tower without a class token that is the first cell."""
    model, processor = llava_15()
    processor.num_additional_image_tokens = 0
    with pytest.raises(ValueError, match="must be 'full' for a tower without a class token"):
        LLAVA.pictures(model.config, processor, prompt(processor)([noise(*WIDE)]), [WIDE])


def test_it_is_found_by_its_model_type_and_compares_raw_pieces() -> None:
    model, _ = llava_15()
    assert detect(model.config) is LLAVA
    assert detect(SimpleNamespace(model_type="llava")) is LLAVA
    assert LLAVA.raw_pieces
    assert LLAVA.frames is None
    assert geometry(model.config).kv_heads == 4
    assert len(attention_modules(model)) == 3
