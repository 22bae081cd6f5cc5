"""Lookup: what followed the last tokens of a row where they stood before."""

from __future__ import annotations

import torch
from torch import Tensor

NONE = -1  # where nothing is proposed


def find(
    ids: Tensor, lengths: Tensor, gamma: int, *, ngram: int = 2, tokens: int | None = None, never: tuple[int, ...] = ()
) -> Tensor:
    """Propose int64 [row, gamma]; NONE behind what was found.

    ids: int64 [row, capacity]. lengths: [row], tokens of each row. ngram: last tokens looked for, then one fewer,
    down to one; of several places the first. tokens: size of the vocabulary. never: ids that no model emits.
    """
    place = torch.arange(ids.shape[1], device=ids.device)
    begin = torch.full_like(lengths, ids.shape[1])
    for size in range(1, ngram + 1):  # a longer match comes later and stands
        ends = lengths[:, None] - size + torch.arange(size, device=ids.device)
        wanted = ids.gather(1, ends.clamp_min(0))
        windows = ids.unfold(1, size, 1)
        match = (windows == wanted[:, None]).all(-1) & (place[: windows.shape[1]] + size < lengths[:, None])
        found = match & (lengths >= size)[:, None]
        first = found.int().argmax(-1) + size
        begin = torch.where(found.any(-1), first, begin)
    at = begin[:, None] + torch.arange(gamma, device=ids.device)
    given = ids.gather(1, at.clamp_max(ids.shape[1] - 1))
    there = at < lengths[:, None]
    for token in never:
        there &= given != token
    there = there.long().cumprod(-1).bool() if tokens is None else (there & (given < tokens)).long().cumprod(-1).bool()
    return given.where(there, NONE)
