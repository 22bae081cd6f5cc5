"""Offloaded segments: a layer's keys and values in the CPU's memory, on the device while a pass is in the layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from headscope.cache.host import Host
from headscope.cache.segments import GROWTH, Segments, laid
from headscope.kernels.tail import copy_tail
from headscope.runtime import WindowedSegments

if TYPE_CHECKING:
    from headscope.speculate.offload import Offload


class OffloadedSegments(Segments):
    """Segments whose keys and values are on the device between `enter` and `leave` only.

    What is appended in between is written to the CPU's memory too. starts, lengths and room are what they always are.
    """

    offload: Offload
    host: Host
    layer: int
    inside: bool
    appended: tuple[Tensor, Tensor] | None
    nothing: Tensor

    def belong(self, offload: Offload, host: Host, layer: int) -> None:
        """Say where keys and values are. layer: its number among the offloaded ones."""
        self.offload, self.host, self.layer = offload, host, layer
        self.inside, self.appended, self.nothing = False, None, self.key

    @property
    def kv_bytes(self) -> int:
        """Bytes in the CPU's memory, slack included."""
        return self.host.key.nbytes + self.host.value.nbytes

    def enter(self) -> None:
        """Wait on the device for this layer's keys and values; those of the next layers follow beside it."""
        self.key, self.value = self.offload.enter(self.layer).part(self.host.slots)
        self.inside = True

    def leave(self, new: int) -> None:
        """Write what was appended to the CPU's memory, and make place for the next layers."""
        self.appended = super().newest(new) if new else None
        if new:
            there = self.starts, self.lengths
            copy_tail((self.key, self.value, *there), (self.host.key, self.host.value, *there), new)
        self.key = self.value = self.nothing
        self.inside = False
        self.offload.leave(self.layer)

    def newest(self, new: int) -> tuple[Tensor, Tensor]:
        """Give the last `new` tokens, which the pass just made has appended: keys and values [row, kv, new, dim]."""
        assert self.appended is not None and self.appended[0].shape[2] == new
        return self.appended

    def append(self, key: Tensor, value: Tensor) -> None:
        """Write new tokens [row, kv, new, dim] behind every segment."""
        outside = not self.inside
        if outside:
            self.enter()
        super().append(key, value)
        if outside:
            self.leave(key.shape[2])

    def reserve(self, room: int, dropped: Tensor | None = None) -> None:
        """Move to buffers with at least so much slack. dropped: int32 [row, kv], first tokens to leave behind."""
        inside = self.inside
        starts = self.starts if dropped is None else self.starts + dropped
        lengths = self.lengths if dropped is None else self.lengths - dropped
        total = int(lengths.sum())
        self.room = max(room, total // lengths.numel() // GROWTH)
        places, slots = laid(lengths, self.room, total)
        self.offload.forget(self.layer)
        self.host = self.host.moved(starts, places, lengths, slots)
        self.starts, self.lengths = places, lengths
        if inside:
            self.enter()


class OffloadedWindow(OffloadedSegments, WindowedSegments):
    """The same for a layer whose queries see a window."""
