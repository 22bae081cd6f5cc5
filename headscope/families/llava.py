"""LLaVA-1.5: one square grid a picture; the stock processor crops the centre, and what is cropped away has no cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from headscope.families.family import Family, Size
from headscope.families.grid import Axis, Grid, Picture
from headscope.families.runs import one_each, prompt_ids, refuse_video, same_number


def pictures(config: Any, processor: Any, inputs: Mapping[str, Any], sizes: Sequence[Size]) -> list[Picture]:
    """Map each picture of a prompt to its cells; see Family.

    A picture has one grid only: it is `fine`, and `base` is None. Raises ValueError, besides, for processor settings
    whose mapping is not known and for a Pixtral tower.
    """
    refuse_video(inputs, "llava")
    if inputs.get("image_sizes") is not None:
        raise ValueError(
            "`config` must be of a LLaVA with square pictures, got a Pixtral tower, whose layout is not handled; "
            "docs/families.md says how to add a family"
        )
    pixels = inputs.get("pixel_values")
    shapes = [] if pixels is None else [tuple(picture.shape[-2:]) for picture in pixels]
    same_number("`pixel_values`", len(shapes), sizes)
    patch, front = config.vision_config.patch_size, _tokens_in_front(processor)
    counts = [front + (height // patch) * (width // patch) for height, width in shapes]
    runs = one_each(prompt_ids(inputs), config.image_token_id, counts)
    return [
        Picture(fine=_grid(processor.image_processor, size, shape, patch, run[0] + front), base=None, run=run)
        for size, shape, run in zip(sizes, shapes, runs, strict=True)
    ]


def pasted(
    pixels: int, cells: int, patch: int, *, resized: int, length: int | None = None, paste: int = 0, crop: int = 0
) -> Axis:
    """Give the axis of a side that is pasted at `paste` into one of `length` pixels, resized, then cut off at `crop`.

    length: None is the side's own. crop: where the first patch begins in the resized side; negative where it was
    padded.
    """
    length = pixels if length is None else length
    return Axis(pixels, cells, num=resized, shift=paste * resized - crop * length, den=length * patch)


def block(start: int, rows: int, columns: int) -> torch.Tensor:
    """Give the positions, int64 [rows, columns], of cells that follow each other row by row."""
    return torch.arange(start, start + rows * columns).reshape(rows, columns)


def _tokens_in_front(processor: Any) -> int:
    """Count the tokens of the tower that stand before the cells: its class token, where the strategy keeps it."""
    extra, strategy = processor.num_additional_image_tokens, processor.vision_feature_select_strategy
    if (front := extra - (strategy == "default")) < 0:
        raise ValueError(
            "`vision_feature_select_strategy` must be 'full' for a tower without a class token, got 'default', which "
            "drops the first cell; set it, or `num_additional_image_tokens`, as the model's own processor has it"
        )
    return front


def _grid(settings: Any, size: Size, shape: Size, patch: int, start: int) -> Grid:
    """Lay a picture's cells from position start on.

    size: of the page; shape: of what the tower gets; both (height, width).
    """
    canvas = (max(size), max(size)) if _pads_to_square(settings) else size
    resized = _resized(settings, canvas)
    crops = bool(settings.do_center_crop)
    if not crops and resized != shape:
        raise ValueError(
            f"`sizes` must be those of the pictures that the processor got: {size} becomes {resized}, it made {shape}"
        )
    axes = [
        pasted(
            size[side],
            shape[side] // patch,
            patch,
            resized=resized[side],
            length=canvas[side],
            paste=(canvas[side] - size[side]) // 2,
            crop=_crop(settings, resized[side], shape[side]),
        )
        for side in (0, 1)
    ]
    return Grid(axes[0], axes[1], block(start, axes[0].cells, axes[1].cells))


def _pads_to_square(settings: Any) -> bool:
    if (pads := getattr(settings, "do_pad", None)) and not hasattr(settings, "pad_to_square"):
        raise ValueError(
            f"`do_pad` must be off in a {type(settings).__name__}, got on: only where LlavaImageProcessor pads is known"
        )
    return bool(pads)


def _resized(settings: Any, size: Size) -> Size:
    """Give the (height, width) that the processor resizes to: its shortest edge, or both sides."""
    if not settings.do_resize:
        return size
    wanted = settings.size
    height, width, edge = wanted.get("height"), wanted.get("width"), wanted.get("shortest_edge")
    if height and width:
        return height, width
    if not edge or wanted.get("longest_edge"):
        raise ValueError(f"`size` must have `height` and `width`, or `shortest_edge` alone, got {dict(wanted)}")
    long = int(edge * max(size) / min(size))
    return (long, edge) if size[1] <= size[0] else (edge, long)


def _crop(settings: Any, resized: int, cropped: int) -> int:
    """Give the pixel at which the centre crop begins; negative where the picture was too small and is padded."""
    if resized >= cropped:
        return (resized - cropped) // 2
    pil = getattr(settings, "backend", "torchvision") == "pil"
    return -((cropped - resized + pil) // 2)


LLAVA = Family("llava", ("llava",), pictures, raw_pieces=True)
