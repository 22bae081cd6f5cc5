"""LLaVA-OneVision: LLaVA-NeXT's layout, shrunk when too large; pictures that come together are one tile each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.nn.functional import interpolate

from headscope.families.family import Family, Size
from headscope.families.grid import Axis, Grid, Picture, Reads
from headscope.families.llava import block, pasted
from headscope.families.llava_next import Tile, best_resolution, lay, same_sizes, tile_of, tiled
from headscope.families.runs import Run, one_each, prompt_ids, refuse_video

SHRINK_ABOVE = 1.1  # the model's own constant: sqrt(cells / allowed cells) from which the fine grid is shrunk


def pictures(config: Any, processor: Any, inputs: Mapping[str, Any], sizes: Sequence[Size]) -> list[Picture]:
    """Map each picture of a prompt to its cells; see Family.

    A picture that the processor was given alone has a fine and a base grid. Several that it was given as one prompt's
    (`images=[[a, b]]`, which a chat template does) are padded to a square and have one grid each: it is `fine`, `base`
    is None.
    """
    refuse_video(inputs, "llava_onevision")
    same_sizes(inputs, sizes)
    if not sizes:
        return []
    tile = tile_of(config, processor, inputs)
    if processor.num_image_tokens - (processor.vision_feature_select_strategy == "default") != tile.cells**2:
        raise ValueError(
            f"`num_image_tokens` must be the {tile.cells}x{tile.cells} cells of a tile (and its class token, where the "
            f"strategy drops it), got {processor.num_image_tokens}; use the model's own processor"
        )
    if _together(inputs, sizes):
        runs = one_each(prompt_ids(inputs), config.image_token_id, [tile.cells**2 + 1] * len(sizes))
        return [_square(run, size, tile) for run, size in zip(runs, sizes, strict=True)]
    axes = [_fine(config, processor, size, tile) for size in sizes]
    return lay(config, inputs, sizes, axes, tile)


def shrunk(axis: Axis, cells: int) -> Axis:
    """Give an axis whose cells are interpolated bilinearly (corners not aligned) to fewer.

    A cell reads each old cell that torch's interpolation weighs with more than zero.
    """
    return replace(axis, cells=cells, reads=(*axis.reads, _reads(axis.cells, cells)))


def _reads(before: int, after: int) -> Reads:
    """Ask torch which of the cells before, first and last, each cell after an interpolation is made from."""
    weights = interpolate(torch.eye(before)[None, :, :, None], [after, 1], mode="bilinear")[0, :, :, 0]
    each = [weights[:, cell].nonzero()[:, 0].tolist() for cell in range(after)]
    return tuple((old[0], old[-1]) for old in each)


def _fine(config: Any, processor: Any, size: Size, tile: Tile) -> tuple[Axis, Axis]:
    y, x = tiled(size, best_resolution(config, processor, size, tile), tile)
    allowed = int(config.vision_aspect_ratio.removeprefix("anyres_max_")) * tile.cells**2
    ratio = math.sqrt(y.cells * x.cells / allowed)
    if ratio <= SHRINK_ABOVE:
        return y, x
    return shrunk(y, int(y.cells // ratio)), shrunk(x, int(x.cells // ratio))


def _together(inputs: Mapping[str, Any], sizes: Sequence[Size]) -> bool:
    """Say whether the processor was given the pictures as one prompt's several."""
    groups = inputs.get("batch_num_images")
    groups = [1] * len(sizes) if groups is None else torch.as_tensor(groups).tolist()
    if groups not in ([len(sizes)], [1] * len(sizes)):
        raise ValueError(f"`batch_num_images` must put all {len(sizes)} pictures into one prompt, got {groups}")
    return len(sizes) > 1 and groups == [len(sizes)]


def _square(run: Run, size: Size, tile: Tile) -> Picture:
    length = max(size)
    y, x = (
        pasted(pixels, tile.cells, tile.patch, resized=tile.side, length=length, paste=(length - pixels) // 2)
        for pixels in size
    )
    return Picture(Grid(y, x, block(run[0], tile.cells, tile.cells)), None, run)


LLAVA_ONEVISION = Family("llava_onevision", ("llava_onevision",), pictures)
