"""Qwen2-VL, Qwen2.5-VL and Qwen3-VL: one grid a picture, cut row by row, read from the processor's own output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from headscope.families.family import Family, Size, Video
from headscope.families.grid import Axis, Grid, Picture
from headscope.families.runs import Run, one_each, pieces, prompt_ids, same_number

Cells = tuple[int, int, int]


def pictures(config: Any, processor: Any, inputs: Mapping[str, Any], sizes: Sequence[Size]) -> list[Picture]:
    """Map each picture of a prompt to its cells; see Family."""
    cells = _cells(inputs, "image_grid_thw", processor.image_processor.merge_size, sizes, "pictures")
    lengths = [rows * columns for _, rows, columns in cells]
    runs = one_each(prompt_ids(inputs), config.image_token_id, lengths)
    return [_picture(run, size, cell) for run, size, cell in zip(runs, sizes, cells, strict=True)]


def frames(
    config: Any, processor: Any, inputs: Mapping[str, Any], videos: Sequence[Video], *, timestamps: bool
) -> list[list[Picture]]:
    """Map each frame of each video to its cells; the frames of one temporal patch share their positions; see Family.

    timestamps: the prompt gives each temporal patch a run of its own (Qwen3-VL), else a video is one run.
    """
    settings = processor.video_processor
    cells = _cells(inputs, "video_grid_thw", settings.merge_size, videos, "videos")
    for video, (patches, _, _) in zip(videos, cells, strict=True):
        _refuse_sampling(video[0], patches, settings.temporal_patch_size)
    each = [[rows * columns] * patches for patches, rows, columns in cells]
    lengths = [length for video in each for length in (video if timestamps else [sum(video)])]
    found = iter(one_each(prompt_ids(inputs), config.video_token_id, lengths, "video parts"))
    runs = [[next(found) for _ in video] if timestamps else pieces(next(found)[0], video) for video in each]
    return [
        [_picture(parts[frame // settings.temporal_patch_size], video[1:], cell) for frame in range(video[0])]
        for parts, video, cell in zip(runs, videos, cells, strict=True)
    ]


def _cells(inputs: Mapping[str, Any], name: str, merge: int, sizes: Sequence[Any], what: str) -> list[Cells]:
    """Give (temporal patches, rows, columns) of each picture or video, in cells of the sequence."""
    grids = inputs.get(name)
    grids = [] if grids is None else torch.as_tensor(grids).tolist()
    same_number(f"`{name}`", len(grids), sizes, what)
    return [(patches, rows // merge, columns // merge) for patches, rows, columns in grids]


def _picture(run: Run, size: Size, cells: Cells) -> Picture:
    """Lay a whole picture, resized to its grid, over the run."""
    (height, width), (_, rows, columns) = size, cells
    positions: Tensor = torch.arange(run[0], run[0] + rows * columns).reshape(rows, columns)
    return Picture(
        fine=Grid(Axis.proportional(height, rows), Axis.proportional(width, columns), positions), base=None, run=run
    )


def _refuse_sampling(frames: int, patches: int, frames_per_patch: int) -> None:
    filled = -(-frames // frames_per_patch)
    if patches != filled:
        raise ValueError(
            f"`videos` must give the frames that the model sees: {frames} frames fill {filled} temporal patches, "
            f"the processor made {patches}; pick the frames first and call it with `do_sample_frames=False`"
        )


QWEN2_VL = Family("qwen2_vl", ("qwen2_vl",), pictures, partial(frames, timestamps=False))
QWEN2_5_VL = Family("qwen2_5_vl", ("qwen2_5_vl",), pictures, partial(frames, timestamps=False))
QWEN3_VL = Family("qwen3_vl", ("qwen3_vl",), pictures, partial(frames, timestamps=True))
