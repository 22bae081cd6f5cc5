"""Placeholder runs: the stretches of a prompt's token ids that the pictures' vectors replace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor

Run = tuple[int, int]


def prompt_ids(inputs: Mapping[str, Any]) -> Tensor:
    """Give the token ids, int64 [token], of a processor's output that holds one prompt.

    Raises ValueError when it holds several: padding would move every position.
    """
    ids = torch.as_tensor(inputs["input_ids"])
    if ids.ndim == 1:
        return ids
    if ids.ndim != 2 or ids.shape[0] != 1:
        raise ValueError(f"`inputs` must hold one prompt, got `input_ids` of shape {list(ids.shape)}; use a batch of 1")
    return ids[0]


def runs(input_ids: Tensor, token_id: int) -> list[Run]:
    """Give each longest stretch (start, stop) of one token id in input_ids, int64 [token], in order."""
    padded = torch.zeros(input_ids.shape[0] + 2, dtype=torch.int8)
    padded[1:-1] = input_ids.cpu() == token_id
    steps = padded.diff()
    starts, stops = (steps == 1).nonzero()[:, 0], (steps == -1).nonzero()[:, 0]
    return list(zip(starts.tolist(), stops.tolist(), strict=True))


def one_each(input_ids: Tensor, token_id: int, lengths: Sequence[int], what: str = "pictures") -> list[Run]:
    """Give each picture, in order, the run of placeholders that its `length` of tokens fills.

    Pictures with nothing between them share one stretch of placeholders; it is cut where one ends and the next begins.

    Raises ValueError when the runs and the pictures do not fit: too few, too many, another number of tokens.
    """
    found = runs(input_ids, token_id)
    given, left = [], list(lengths)
    for start, stop in found:
        at = start
        while at < stop and left and at + left[0] <= stop:
            given.append((at, at + left[0]))
            at += left.pop(0)
        if at != stop:
            raise ValueError(_mismatch(found, lengths, what))
    if left:
        raise ValueError(_mismatch(found, lengths, what))
    return given


def pieces(start: int, lengths: Sequence[int]) -> list[Run]:
    """Cut a run that begins at start into consecutive pieces of these lengths."""
    return list(pairwise(accumulate(lengths, initial=start)))


def same_number(name: str, found: int, sizes: Sequence[Any], what: str = "pictures") -> None:
    """Raise ValueError unless the processor's output `name` has one entry for each of the sizes."""
    if found != len(sizes):
        raise ValueError(
            f"`sizes` must give one size for each of the prompt's {what}: {len(sizes)} given, {name} has {found}"
        )


def refuse_video(inputs: Mapping[str, Any], family: str) -> None:
    """Raise ValueError when a processor's output holds video, for a family whose video layout is not handled."""
    if any(inputs.get(name) is not None for name in ("pixel_values_videos", "video_grid_thw")):
        raise ValueError(f"`{family}` is handled for pictures only, got video; give the frames as pictures")


def _mismatch(found: Sequence[Run], lengths: Sequence[int], what: str) -> str:
    placeholders = [stop - start for start, stop in found]
    return (
        f"the prompt must have one placeholder run for each of its {len(lengths)} {what}, {list(lengths)} tokens long, "
        f"got {len(placeholders)} runs of {placeholders} tokens; make the prompt with this model's own processor, uncut"
    )
