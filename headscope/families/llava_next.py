"""LLaVA-NeXT: a base tile with the whole picture, then the tiles' rows without their padding, a newline after each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from headscope.families.family import Family, Size
from headscope.families.grid import Axis, Grid, Picture
from headscope.families.llava import block, pasted
from headscope.families.runs import Run, one_each, prompt_ids, refuse_video, same_number


@dataclass(frozen=True)
class Tile:
    """The square that the tower sees at once.

    side: its pixels; patch: pixels of a cell's side. What a side has beyond whole patches belongs to no cell.
    """

    side: int
    patch: int

    @property
    def cells(self) -> int:
        """Cells along one side."""
        return self.side // self.patch


def pictures(config: Any, processor: Any, inputs: Mapping[str, Any], sizes: Sequence[Size]) -> list[Picture]:
    """Map each picture of a prompt to its fine and base cells; see Family.

    A picture so flat that no row of tiles' cells is left of it (1 x 200) has a fine grid without cells.
    """
    refuse_video(inputs, "llava_next")
    same_sizes(inputs, sizes)
    if not sizes:
        return []
    tile = tile_of(config, processor, inputs)
    if processor.num_additional_image_tokens != (processor.vision_feature_select_strategy == "default"):
        raise ValueError(
            "`vision_feature_select_strategy` must leave the cells alone, 'default' with a class token, else 'full', "
            f"got {processor.vision_feature_select_strategy!r} with {processor.num_additional_image_tokens} more tokens"
        )
    axes = [tiled(size, best_resolution(config, processor, size, tile), tile) for size in sizes]
    return lay(config, inputs, sizes, axes, tile)


def lay(
    config: Any, inputs: Mapping[str, Any], sizes: Sequence[Size], axes: Sequence[tuple[Axis, Axis]], tile: Tile
) -> list[Picture]:
    """Lay pictures, each a base tile and fine (y, x) axes, over the prompt's placeholder runs.

    Raises ValueError where they do not fit.
    """
    lengths = [tile.cells**2 + y.cells * (x.cells + 1) for y, x in axes]
    runs = one_each(prompt_ids(inputs), config.image_token_id, lengths)
    return [_picture(run, size, y, x, tile) for run, size, (y, x) in zip(runs, sizes, axes, strict=True)]


def tiled(size: Size, target: Size, tile: Tile) -> tuple[Axis, Axis]:
    """Give the (y, x) axes of a picture that is fitted into target pixels, cut into tiles, and freed of its padding.

    size, target: (height, width). The cells at the border of what is left may hold padding, and a sliver of the picture
    may go with the padding, since one is counted in pixels and the other in cells.
    """
    from transformers.image_processing_utils import get_patch_output_size

    shell = torch.empty(3, *size, device="meta")
    resized = get_patch_output_size(shell, target, input_data_format="channels_first")
    trimmed = _trimmed(size, *(length // tile.side * tile.cells for length in target))
    y, x = (_side(*side, tile) for side in zip(size, resized, target, trimmed, strict=True))
    return y, x


def best_resolution(config: Any, processor: Any, size: Size, tile: Tile) -> Size:
    """Give the (height, width) of the tiles that a picture is fitted into.

    Raises ValueError when model and processor pick different ones, or one that is not made of whole tiles.
    """
    from transformers.image_processing_utils import select_best_resolution

    own, other = (
        select_best_resolution(size, part.image_grid_pinpoints) for part in (config, processor.image_processor)
    )
    if own != other or any(length % tile.side for length in own):
        raise ValueError(
            f"`image_grid_pinpoints` must be the same in model and processor, and multiples of {tile.side} pixels, "
            f"got {own} and {other} for a picture of {size}; use the model's own processor"
        )
    return own


def tile_of(config: Any, processor: Any, inputs: Mapping[str, Any]) -> Tile:
    """Give the tower's tile. Raises ValueError when the processor's tiles have another size."""
    tile, settings = Tile(config.vision_config.image_size, config.vision_config.patch_size), processor.image_processor
    size, crop = settings.size, settings.crop_size or {}
    side = size.get("height") or size.get("shortest_edge")
    cut = crop.get("height") or side
    if {*inputs["pixel_values"].shape[-2:], side, size.get("width") or side, cut} != {tile.side}:
        raise ValueError(
            f"the processor's `size` and `crop_size` must be the tower's {tile.side} pixels, got {side} and {cut} "
            f"and tiles of {list(inputs['pixel_values'].shape[-2:])}; use the model's own"
        )
    return tile


def same_sizes(inputs: Mapping[str, Any], sizes: Sequence[Size]) -> None:
    """Raise ValueError unless the sizes are those that the processor saw."""
    seen = inputs.get("image_sizes")
    seen = [] if seen is None else [tuple(size) for size in torch.as_tensor(seen).tolist()]
    same_number("`image_sizes`", len(seen), sizes)
    if seen != (given := [tuple(size) for size in sizes]):
        raise ValueError(
            f"`sizes` must be the pictures' (height, width) as the processor saw them, {seen}, got {given}"
        )


def _side(pixels: int, resized: int, target: int, trimmed: int, tile: Tile) -> Axis:
    """Give one fine axis: page pixels -> pixels of the padded picture -> cells. trimmed: cells left out at each end."""
    total = target // tile.side * tile.cells
    starts = [
        cell // tile.cells * tile.side + cell % tile.cells * tile.patch for cell in range(trimmed, total - trimmed)
    ]
    cells = tuple((start, start + tile.patch - 1) for start in starts)
    paste = (target - resized) // 2
    return Axis(pixels, len(cells), num=resized, shift=paste * pixels, den=pixels, reads=(cells,))


def _trimmed(size: Size, rows: int, columns: int) -> tuple[int, int]:
    """Count the rows and columns that the model's `unpad_image` takes off at either end of a grid of rows x columns."""
    height, width = size
    if width / height > columns / rows:
        return (rows - int(round(height * (columns / width), 7))) // 2, 0
    return 0, (columns - int(round(width * (rows / height), 7))) // 2


def _picture(run: Run, size: Size, y: Axis, x: Axis, tile: Tile) -> Picture:
    side, start = tile.cells, run[0]
    base_y, base_x = (pasted(pixels, side, tile.patch, resized=tile.side) for pixels in size)
    rows = block(start + side**2, y.cells, x.cells + 1)
    return Picture(Grid(y, x, rows[:, :-1]), Grid(base_y, base_x, block(start, side, side)), run)


LLAVA_NEXT = Family("llava_next", ("llava_next",), pictures, raw_pieces=True)
