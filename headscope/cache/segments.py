"""Segments: one layer's kept keys and values, one run of slots for each (row, KV head), with slack behind it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headscope.kernels import append, pack
from headscope.kernels.segments import segment_slots

ROOM = 32  # least slots of slack behind each segment
GROWTH = 8  # slack is a share 1 / GROWTH of the mean segment, so that appending costs GROWTH copies a token at most


@dataclass(eq=False)
class Segments:
    """Flat buffers in the cache's dtype; appending writes in place, and moves them only when the slack is used up.

    key, value: [slot, dim]. starts: int64 [row, kv], the first slot of a segment. lengths: int32 [row, kv], its tokens.
    room: slots of slack that every segment has at least.
    """

    key: Tensor
    value: Tensor
    starts: Tensor
    lengths: Tensor
    room: int

    @classmethod
    def of(cls, key: Tensor, value: Tensor, positions: Tensor, lengths: Tensor, room: int = 0) -> Segments:
        """Pack the chosen tokens of dense keys and values [row, kv, token, dim].

        positions: int64 [kept], segment by segment. lengths: int32 [row, kv].
        """
        room = max(room, ROOM, positions.numel() // lengths.numel() // GROWTH)
        starts, slots = laid(lengths, room, positions.numel())
        flat = cls(key.new_empty(slots, key.shape[-1]), value.new_empty(slots, value.shape[-1]), starts, lengths, room)
        pack(key, value, positions, flat.key, flat.value, starts, lengths)
        return flat

    @property
    def kv_bytes(self) -> int:
        """Bytes of both buffers, slack included."""
        return self.key.nbytes + self.value.nbytes

    def enter(self) -> None:
        """Have keys and values at hand: a pass calls this before it comes to the layer. Here they always are."""

    def leave(self, new: int) -> None:
        """Let keys and values go again: a pass calls this once it has appended `new` tokens and attended."""

    def newest(self, new: int) -> tuple[Tensor, Tensor]:
        """Give the last `new` tokens, which the pass just made has appended: keys and values [row, kv, new, dim]."""
        slots = (self.starts + self.lengths - new)[..., None] + torch.arange(new, device=self.starts.device)
        return self.key[slots], self.value[slots]

    def append(self, key: Tensor, value: Tensor) -> None:
        """Write new tokens [row, kv, new, dim] behind every segment."""
        new = key.shape[2]
        if new > self.room:
            self.reserve(new)
        append(self.key, self.value, self.starts, self.lengths, key, value)
        self.room -= new

    def reserve(self, room: int, dropped: Tensor | None = None) -> None:
        """Move to buffers with at least so much slack. dropped: int32 [row, kv], first tokens to leave behind."""
        starts = self.starts if dropped is None else self.starts + dropped
        lengths = self.lengths if dropped is None else self.lengths - dropped
        total = int(lengths.sum())
        self.room = max(room, ROOM, total // lengths.numel() // GROWTH)
        places, slots = laid(lengths, self.room, total)
        old, new = (segment_slots(first, lengths, total)[1] for first in (starts, places))
        for name in ("key", "value"):
            buffer: Tensor = getattr(self, name)
            moved = buffer.new_empty(slots, buffer.shape[1])
            moved[new] = buffer[old]
            setattr(self, name, moved)
        self.starts, self.lengths = places, lengths


def laid(lengths: Tensor, room: int, total: int) -> tuple[Tensor, int]:
    """Lay segments one after another: their starts, int64 [row, kv], and the slots that they take."""
    ends = (lengths.flatten().long() + room).cumsum(0)
    return (ends - lengths.flatten() - room).view(lengths.shape), total + room * lengths.numel()
