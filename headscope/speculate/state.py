"""The state of speculation: every row's tokens and both caches, on the device, rows of different lengths together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headscope.cache.segments import Segments

GROWTH = 256  # slots by which segments grow when their room is used up


@dataclass(eq=False)
class State:
    """What a round reads and changes.

    ids: int64 [row, capacity], prompt and answer, as plain generation would hold them; padding behind. lengths: int64
    [row], tokens of each row in `ids`. offset: int64 [row], of rotary positions against places in `ids`. frozen: bool
    [row], rows that take no more tokens. whole: the dense segments of each layer, which hold all of a row's tokens but
    the last. kept: the draft's own segments, kept prompt tokens and all after them; None: the draft has none.
    """

    ids: Tensor
    lengths: Tensor
    offset: Tensor
    frozen: Tensor
    whole: list[Segments]
    kept: list[Segments] | None

    @property
    def rows(self) -> int:
        """Sequences in the batch."""
        return self.ids.shape[0]

    @property
    def last(self) -> Tensor:
        """The last token of each row, which no cache holds yet: int64 [row, 1]."""
        return self.ids.gather(1, self.lengths[:, None] - 1)

    def positions(self, first: int, new: int) -> Tensor:
        """Give the rotary positions of tokens from the `first` after the last one on: int64 [row, new]."""
        places = torch.arange(first - 1, first - 1 + new, device=self.ids.device)
        return (self.lengths + self.offset)[:, None] + places

    def put(self, tokens: Tensor, first: int = 0, counted: Tensor | None = None, pad: int = 0) -> None:
        """Write tokens [row, new] behind each row's own, `first` places on. counted: bool [row, new], others pad."""
        places = self.lengths[:, None] + torch.arange(first, first + tokens.shape[1], device=tokens.device)
        self.ids.scatter_(1, places, tokens if counted is None else tokens.where(counted, pad))

    def catch_up(self, new: int) -> None:
        """Give the draft's segments the dense keys and values of the last `new` tokens."""
        for whole, kept in zip(self.whole, self.kept or (), strict=False):
            kept.append(*whole.newest(new))

    def layers(self) -> list[Segments]:
        """Give all segments, the draft's after the dense ones."""
        return [*self.whole, *(self.kept or ())]


def rewind(layers: Sequence[Segments], tokens: int | Tensor, room: int = 0) -> None:
    """Take back the last tokens of every row: a number, or int64 [row]. room: what every segment gains at least."""
    less = tokens.to(torch.int32)[:, None] if isinstance(tokens, Tensor) else tokens
    changes = isinstance(less, Tensor) or less != 0
    for lengths in _joined(layers) if changes else ():
        lengths -= less
    for segments in layers:
        segments.room += room


def _joined(layers: Sequence[Segments]) -> list[Tensor]:
    """Give the lengths of all segments in as few tensors as they lie in (`headscope.fused.step.tie_lengths`)."""
    bases = {id(each.lengths._base): each.lengths._base for each in layers}
    counted = sum(len(base) for base in bases.values() if base is not None)
    if None not in bases.values() and counted == len(layers):
        return [base for base in bases.values() if base is not None]
    return [each.lengths for each in layers]


def make_room(layers: Sequence[Segments], new: int) -> None:
    """See that every segment has room for `new` more tokens."""
    for segments in layers:
        if segments.room < new:
            segments.reserve(new + GROWTH)
