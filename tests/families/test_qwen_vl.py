"""The Qwen families, cell by cell: which positions of the prompt change when a spot of a picture does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import PreTrainedModel, ProcessorMixin, Qwen2VLImageProcessor

from headscope.families import Picture, detect
from tests.families.locality import changed, check, embeds, local, mapped, noise, spots, spotted
from tests.families.tiny import TINY

NAMES = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
VIDEO = "<|vision_start|><|video_pad|><|vision_end|>"


@cache
def tiny(name: str) -> tuple[PreTrainedModel, ProcessorMixin]:
    """Build a tiny model once, with a local tower."""
    model, processor = TINY[name]()
    return local(model), processor


def ask(processor: ProcessorMixin, images: Sequence[np.ndarray], **options: Any) -> Mapping[str, Any]:
    """Ask for the text of the pictures, in the processor's own chat format."""
    content = [{"type": "image"} for _ in images] + [{"type": "text", "text": "Read the text."}]
    prompt = processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True)
    pictures = [Image.fromarray(image) for image in images]
    return processor(images=pictures, text=[prompt], return_tensors="pt", **options)


def watch(processor: ProcessorMixin, *videos: Sequence[np.ndarray]) -> Mapping[str, Any]:
    """Put videos, frame by frame, into a prompt."""
    text = "a " + " b ".join([VIDEO] * len(videos)) + " c"
    return processor(videos=[np.stack(video) for video in videos], text=[text], return_tensors="pt")


def find(name: str, inputs: Mapping[str, Any], images: Sequence[np.ndarray]) -> list[Picture]:
    model, processor = tiny(name)
    return detect(model.config).pictures(model.config, processor, inputs, [image.shape[:2] for image in images])


def find_frames(name: str, inputs: Mapping[str, Any], videos: Sequence[tuple[int, int, int]]) -> list[list[Picture]]:
    model, processor = tiny(name)
    return detect(model.config).frames(model.config, processor, inputs, videos)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("sides", "shrink"),
    [
        pytest.param([(84, 112)], False, id="its own size"),
        pytest.param([(90, 150)], False, id="sides that are no multiple"),
        pytest.param([(30, 41)], False, id="enlarged"),
        pytest.param([(300, 500)], True, id="shrunk by max_pixels"),
        pytest.param([(30, 400)], False, id="one row"),
        pytest.param([(90, 150), (56, 56), (170, 70)], False, id="several sizes"),
    ],
)
def test_exactly_the_mapped_positions_change_with_a_spot(name, sides, shrink):
    model, processor = tiny(name)
    images = [noise(height, width, seed) for seed, (height, width) in enumerate(sides)]
    side = 2 * processor.image_processor.patch_size
    options = {"size": {"shortest_edge": side**2, "longest_edge": 20 * side**2}} if shrink else {}
    pictures = find(name, ask(processor, images, **options), images)
    assert all(picture.base is None for picture in pictures)
    tried = check(model, lambda changed: ask(processor, changed, **options), images, pictures)
    assert tried == sum(picture.fine.positions.numel() for picture in pictures)


@pytest.mark.parametrize("name", NAMES)
def test_exactly_the_mapped_positions_change_with_a_spot_of_one_frame(name):
    model, processor = tiny(name)
    videos = [[noise(64, 90, frame) for frame in range(3)], [noise(100, 70, 8), noise(100, 70, 9)]]
    inputs = watch(processor, *videos)
    found, before = (find_frames(name, inputs, [(3, 64, 90), (2, 100, 70)]), embeds(model, inputs))
    for video, pictures in enumerate(found):
        for frame, picture in enumerate(pictures):
            for box in spots(picture.fine):
                after = [list(frames) for frames in videos]
                after[video][frame] = spotted(after[video][frame], box)
                assert changed(before, embeds(model, watch(processor, *after))) == mapped(picture, box)


@pytest.mark.parametrize("name", NAMES)
def test_three_frames_fill_two_temporal_patches(name):
    _, processor = tiny(name)
    side = 2 * processor.image_processor.patch_size
    video = [noise(2 * side, 3 * side, frame) for frame in range(3)]
    inputs = watch(processor, video)
    (first, second, third) = find_frames(name, inputs, [(3, 2 * side, 3 * side)])[0]
    held = (inputs["input_ids"][0] == 6).nonzero()[:, 0].tolist()
    assert inputs["video_grid_thw"].tolist() == [[2, 4, 6]]
    assert first.run == second.run
    assert third.fine.positions.reshape(-1).tolist() == held[6:]
    assert (first.run[1] == third.run[0]) == (name != "qwen3_vl")


@pytest.mark.parametrize(
    ("name", "resized", "cells"), [("qwen2_vl", (476, 644), (17, 23)), ("qwen3_vl", (480, 640), (15, 20))]
)
def test_the_cell_size_comes_from_the_processor(name, resized, cells):
    _, processor = tiny(name)
    image = noise(480, 640)
    inputs = ask(processor, [image], size={"shortest_edge": 3136, "longest_edge": 1003520})
    patch = processor.image_processor.patch_size
    assert tuple(side * patch for side in inputs["image_grid_thw"][0, 1:].tolist()) == resized
    assert tuple(find(name, inputs, [image])[0].fine.positions.shape) == cells


def test_a_full_size_page_is_mapped_by_its_resized_grid():
    _, processor = tiny("qwen2_vl")
    image = noise(1080, 1920)
    (picture,) = find(
        "qwen2_vl", ask(processor, [image], size={"shortest_edge": 3136, "longest_edge": 1003520}), [image]
    )
    assert tuple(picture.fine.positions.shape) == (26, 47)
    assert (picture.fine.find((960, 540, 1100, 580)) - picture.run[0]).tolist() == [634, 635, 636, 637]


SIZES = {
    14: {
        (1, 1): (56, 56),
        (1, 200): (28, 812),
        (27, 257): (28, 252),
        (28, 28): (56, 56),
        (42, 42): (56, 56),
        (70, 70): (56, 56),
        (480, 640): (476, 644),
        (1080, 1920): (728, 1316),
        (15420, 690): (4732, 196),
    },
    16: {(1, 1): (256, 256), (27, 257): (96, 800), (480, 640): (480, 640), (1080, 1920): (1088, 1920)},
}
LIMITS = {14: (3136, 1003520), 16: (65536, 16777216)}


@pytest.mark.parametrize(("patch", "size"), [(patch, size) for patch, sizes in SIZES.items() for size in sizes])
def test_every_size_of_page_has_the_grid_of_its_resized_picture(patch, size):
    height, width = SIZES[patch][size]
    name = "qwen2_vl" if patch == 14 else "qwen3_vl"
    _, processor = tiny(name)
    image = np.zeros((*size, 3), dtype=np.uint8)
    low, high = LIMITS[patch]
    inputs = ask(processor, [image], size={"shortest_edge": low, "longest_edge": high})
    (picture,) = find(name, inputs, [image])
    assert tuple(picture.fine.positions.shape) == (height // patch // 2, width // patch // 2)
    assert picture.fine.find((0, 0, size[1], size[0])).tolist() == list(range(*picture.run))


def test_a_side_that_shrinks_to_nothing_elsewhere_keeps_one_cell():
    """31 x 639 pixels in at most 20 cells: a resize that rounds down has no side left."""
    _, processor = tiny("qwen2_vl")
    image = np.zeros((639, 31, 3), dtype=np.uint8)
    (picture,) = find("qwen2_vl", ask(processor, [image], size={"shortest_edge": 3136, "longest_edge": 15680}), [image])
    assert tuple(picture.fine.positions.shape) == (20, 1)


@pytest.mark.parametrize("size", [(1, 201), (201, 1), (10, 2010)])
def test_a_ratio_above_200_is_refused_by_the_processor(size):
    with pytest.raises(ValueError, match="ratio"):
        Qwen2VLImageProcessor()(Image.new("RGB", size[::-1]))


def test_each_picture_lies_in_its_own_run():
    _, processor = tiny("qwen2_vl")
    images = [noise(56, 56), noise(112, 84)]
    inputs = ask(processor, images)
    first, second = find("qwen2_vl", inputs, images)
    held = (inputs["input_ids"][0] == 5).nonzero()[:, 0].tolist()
    assert tuple(second.fine.positions.shape) == (4, 3)
    assert (first.run, second.run) == ((held[0], held[3] + 1), (held[4], held[-1] + 1))
    assert second.fine.find((28, 28, 56, 56)).tolist() == [held[4] + 4]


def test_a_prompt_that_was_cut_is_refused():
    _, processor = tiny("qwen2_vl")
    images = [noise(56, 56), noise(112, 84)]
    inputs = dict(ask(processor, images))
    inputs["input_ids"] = inputs["input_ids"][:, :22]
    with pytest.raises(ValueError, match=r"\[4, 12\] tokens long, got 2 runs of \[4, \d\] tokens"):
        find("qwen2_vl", inputs, images)


@pytest.mark.parametrize("images", [[], [noise(56, 56)], [noise(56, 56)] * 3])
def test_more_or_fewer_pictures_than_the_prompt_has_are_refused(images):
    _, processor = tiny("qwen2_vl")
    with pytest.raises(ValueError, match=f"`sizes` must give one size .* {len(images)} given"):
        find("qwen2_vl", ask(processor, [noise(56, 56)] * 2), images)


def test_a_batch_is_refused():
    _, processor = tiny("qwen2_vl")
    image = noise(56, 56)
    inputs = dict(ask(processor, [image]))
    inputs["input_ids"] = torch.cat([inputs["input_ids"], inputs["input_ids"]])
    with pytest.raises(ValueError, match="`inputs` must hold one prompt"):
        find("qwen2_vl", inputs, [image])


def test_frames_that_the_processor_left_out_are_refused():
    _, processor = tiny("qwen2_vl")
    inputs = watch(processor, [noise(56, 56)] * 4)
    with pytest.raises(ValueError, match=r"9 frames fill 5 temporal patches, the processor made 2; .*do_sample_frames"):
        find_frames("qwen2_vl", inputs, [(9, 56, 56)])
