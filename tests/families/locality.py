"""Locality: change a spot of a picture and see which positions of the prompt change at the language model's entry.

With its attention output projections at zero a vision tower works on each patch alone, so exactly the mapped positions
may differ.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from headscope.families import Axis, Grid, Picture, language_model
from headscope.page import Box

OUTPUT_PROJECTIONS = ("attn.proj", "self_attn.out_proj")
Images = Sequence[np.ndarray]
Inputs = Callable[[Images], Mapping[str, Any]]


class _Entered(Exception):
    """Ends a forward once the language model's inputs are known."""


def local(model: nn.Module) -> nn.Module:
    """Copy the model with the vision attention's output projections, weight and bias, at zero."""
    model = copy.deepcopy(model).eval()
    tower = getattr(model.model, "visual", None) or model.model.vision_tower
    projections = [module for name, module in tower.named_modules() if name.endswith(OUTPUT_PROJECTIONS)]
    assert projections, "no vision attention found"
    for parameter in (parameter for module in projections for parameter in module.parameters()):
        nn.init.zeros_(parameter)
    return model


def embeds(model: nn.Module, inputs: Mapping[str, Any]) -> Tensor:
    """Give `inputs_embeds` [token, width] as they enter the language model; the decoder itself does not run."""
    seen = []

    def stop(module: nn.Module, args: tuple, kwargs: dict) -> None:
        seen.append(kwargs["inputs_embeds"])
        raise _Entered

    handle = language_model(model).register_forward_pre_hook(stop, with_kwargs=True)
    try:
        with torch.inference_mode():
            model(**inputs)
    except _Entered:
        return seen[0][0]
    finally:
        handle.remove()
    raise AssertionError("the language model was never entered")


def changed(before: Tensor, after: Tensor) -> list[int]:
    """Give the positions whose vectors are not bit-equal."""
    return (before != after).any(-1).nonzero()[:, 0].tolist()


def spotted(image: np.ndarray, box: Box) -> np.ndarray:
    """Copy a picture, uint8 [height, width, 3], with the pixels of a box turned to their negative."""
    x0, y0, x1, y1 = (int(side) for side in box)
    image = image.copy()
    image[y0:y1, x0:x1] = 255 - image[y0:y1, x0:x1]
    return image


def middle(axis: Axis, first: int, last: int) -> tuple[int, int]:
    """Give whole pixels [low, high) around the centre of units first..last: at most half their size, at least one."""
    centre = ((first + last + 1) / 2 * axis.den - axis.shift) / axis.num
    quarter = (last + 1 - first) * axis.den / axis.num / 4
    low, high = math.ceil(centre - quarter), math.floor(centre + quarter)
    low, high = (low, high) if low < high else (math.floor(centre), math.floor(centre) + 1)
    return max(low, 0), min(high, axis.pixels)


def spots(grid: Grid) -> Iterator[Box]:
    """Give a box at the centre of each source cell that has a pixel of the page at its centre."""
    for y0, y1 in _middles(grid.y):
        for x0, x1 in _middles(grid.x):
            yield x0, y0, x1, y1


def noise(height: int, width: int, seed: int = 0) -> np.ndarray:
    """Draw a picture of dark noise, uint8 [height, width, 3]: its negative differs everywhere."""
    return np.random.default_rng(seed).integers(0, 80, (height, width, 3), dtype=np.uint8)


def mapped(picture: Picture, box: Box) -> list[int]:
    """Give all positions, fine and base, that a picture's mapping gives for a box."""
    grids = [picture.fine] + ([picture.base] if picture.base is not None else [])
    return sorted({position for grid in grids for position in grid.find(box).tolist()})


def check(model: nn.Module, inputs: Inputs, images: Images, pictures: Sequence[Picture]) -> int:
    """Assert cell by cell, in every picture, that exactly the mapped positions change; give the number of spots tried.

    model: from `local`. inputs: makes the processor's output from pictures. pictures: the mapping under test.
    """
    before, tried = embeds(model, inputs(images)), 0
    for index, (image, picture) in enumerate(zip(images, pictures, strict=True)):
        for box in spots(picture.fine):
            after = [*images[:index], spotted(image, box), *images[index + 1 :]]
            assert changed(before, embeds(model, inputs(after))) == mapped(picture, box), (index, box)
            tried += 1
    return tried


def _middles(axis: Axis) -> list[tuple[int, int]]:
    units = axis.reads[0] if axis.reads else [(cell, cell) for cell in range(axis.cells)]
    return [(low, high) for low, high in (middle(axis, *unit) for unit in units) if 0 <= low < high]
