"""A family: models whose processor lays pictures into the prompt in the same way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headscope.families.grid import Picture

Size = tuple[int, int]
Video = tuple[int, int, int]
Pictures = Callable[[Any, Any, Mapping[str, Any], Sequence[Size]], list[Picture]]
Frames = Callable[[Any, Any, Mapping[str, Any], Sequence[Video]], list[list[Picture]]]


@dataclass(frozen=True)
class Family:
    """What headscope knows about a model family: which positions hold which cell of which picture.

    name: how a score file calls it. model_types: the `model_type` of the configs that belong to it.
    pictures: (config, processor, inputs, sizes) -> one Picture for each decoded picture, in order; inputs is the
    processor's output for one prompt (tensors, batch 1), sizes the (height, width) of the pictures in pixels.
    ValueError when they do not fit together.
    frames: (config, processor, inputs, videos) -> for each video one Picture for each of its frames; videos holds
    (frames, height, width). None: the family refuses video.
    raw_pieces: `match: paper` compares raw vocabulary pieces here, as the published code does for this family.
    """

    name: str
    model_types: tuple[str, ...]
    pictures: Pictures
    frames: Frames | None = None
    raw_pieces: bool = False
