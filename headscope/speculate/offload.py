"""Offloading: dense segments that live in the CPU's memory and come to the device layer by layer, while it computes.

StD names the full cache's place in the GPU's memory as its own limit. The draft's segments stay on the GPU: only the
verification reads the dense ones, once a round for several tokens, and it takes the layers in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headscope.cache.host import Host, check_memory
from headscope.cache.segments import GROWTH, laid
from headscope.kernels import pack
from headscope.speculate.offloaded import OffloadedSegments, OffloadedWindow

BUFFERS = 2  # copying is all that takes long, so a third one would only wait as well
LEAST = 256  # slots behind each segment, if the answer may be as long: a prompt of few tokens moves in no time


@dataclass(eq=False)
class Buffer:
    """Place on the device for one layer. layer: which one it holds, or None.

    ready: when its last copy is done. free: when the device is done with what it held.
    """

    key: Tensor
    value: Tensor
    layer: int | None = None
    ready: Any = None
    free: Any = None

    def part(self, slots: int) -> tuple[Tensor, Tensor]:
        """Give the first slots of both tensors."""
        return self.key[:slots], self.value[:slots]


class Offload:
    """What the offloaded layers of one generation share: buffers on the device, and the stream that fills them.

    layers: of the model. resident: how many of them, the first ones, stay on the device: they are no business of this.
    buffers: for the others to take turns in, at least 1; as many as that are copied ahead. overlap: copy beside the
    computation; else, and on a CPU, in line with it.
    """

    def __init__(
        self, device: torch.device, layers: int, *, resident: int = 0, buffers: int = BUFFERS, overlap: bool = True
    ) -> None:
        self.device, self.layers, self.resident, self.most = device, layers, resident, buffers
        self.stream = torch.cuda.Stream(device) if overlap and device.type == "cuda" else None
        self.buffers: list[Buffer] = []
        self.segments: list[OffloadedSegments] = []

    @property
    def staged_bytes(self) -> int:
        """Bytes of the buffers on the device."""
        return sum(buffer.key.nbytes + buffer.value.nbytes for buffer in self.buffers)

    def take(
        self,
        key: Tensor,
        value: Tensor,
        positions: Tensor,
        lengths: Tensor,
        room: int,
        *,
        windowed: bool = False,
        host: Host | None = None,
    ) -> OffloadedSegments:
        """Pack the chosen tokens of the next layer's dense keys and values, as `Segments.of` does, and copy them out.

        host: buffers to use if they are large enough.
        """
        total = positions.numel()
        room = roomy(room, total // lengths.numel())
        starts, slots = laid(lengths, room, total)
        if not self.segments:
            check_memory((self.layers - self.resident) * 2 * slots * key[0, 0, :1].nbytes, "offload")
        if host is None or host.slots < slots:
            host = Host(slots, key.shape[-1], key.dtype, self.device)
        segments = self.adopt(host.cut(slots), starts, lengths, room, windowed)
        buffer = self._fitted(segments, list(self.buffers))
        self._await(buffer)
        pack(key, value, positions, *buffer.part(slots), starts, lengths)
        buffer.free = self._now()
        self._copy(buffer, out=True)
        return segments

    def adopt(
        self, host: Host, starts: Tensor, lengths: Tensor, room: int, windowed: bool = False
    ) -> OffloadedSegments:
        """Give segments for the next layer, whose keys and values are in the CPU's memory already."""
        kind = OffloadedWindow if windowed else OffloadedSegments
        nothing = torch.empty(0, host.key.shape[1], dtype=host.key.dtype, device=self.device)
        segments = kind(nothing, nothing, starts, lengths, room)
        segments.belong(self, host, len(self.segments))
        self.segments.append(segments)
        return segments

    def enter(self, layer: int) -> Buffer:
        """Give the buffer that holds a layer; the current stream waits for it."""
        self._bring(layer)
        buffer = self._holding(layer)
        assert buffer is not None
        self._await(buffer)
        return buffer

    def leave(self, layer: int) -> None:
        """Let a layer's buffer go, and fill it with what is needed next: in a pass' last layers, of the next pass."""
        buffer = self._holding(layer)
        assert buffer is not None
        buffer.free = self._now()
        self._bring(layer + 1)

    def forget(self, layer: int) -> None:
        """Wait until no copy runs, and let go of what a buffer holds of a layer, which is about to move."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        if (buffer := self._holding(layer)) is not None:
            buffer.layer = None

    def close(self) -> None:
        """Let go of all memory, on the device and in the CPU's."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.buffers.clear()
        self.segments.clear()

    def _bring(self, first: int) -> None:
        """Copy in the layers from `first` on, as many as there are buffers for; the first layer follows the last."""
        count = len(self.segments)
        wanted = [(first + step) % count for step in range(min(self.most, count))]
        held = {buffer.layer for buffer in self.buffers}
        idle = [buffer for buffer in self.buffers if buffer.layer not in wanted]
        for layer in wanted:
            if layer not in held and (idle or len(self.buffers) < self.most):
                self._copy(self._fitted(self.segments[layer], idle), out=False)

    def _fitted(self, segments: OffloadedSegments, idle: list[Buffer]) -> Buffer:
        """Give a layer a buffer, the last of the list from then on: a new one, or the first of those that are idle."""
        if len(self.buffers) < self.most:
            nothing = torch.empty(0, device=self.device)
            buffer = Buffer(nothing, nothing)
        else:
            buffer = idle.pop(0)
            self.buffers.remove(buffer)
        if buffer.key.shape[0] < segments.host.slots:
            self._grow(buffer, segments.host)
        buffer.layer = segments.layer
        self.buffers.append(buffer)
        return buffer

    def _grow(self, buffer: Buffer, host: Host) -> None:
        for name in ("key", "value"):
            setattr(buffer, name, None)  # so that the old memory can be used again
            tensor = torch.empty(host.key.shape, dtype=host.key.dtype, device=self.device)
            if self.stream is not None:
                tensor.record_stream(self.stream)
            setattr(buffer, name, tensor)
        buffer.free = self._now()

    def _copy(self, buffer: Buffer, out: bool) -> None:
        """Copy a layer's keys and values from the device, or to it, once the device is done with the buffer."""
        assert buffer.layer is not None
        host = self.segments[buffer.layer].host
        with self._beside(buffer):
            for here, there in zip(buffer.part(host.slots), (host.key, host.value), strict=True):
                source, target = (here, there) if out else (there, here)
                target.copy_(source, non_blocking=True)

    @contextmanager
    def _beside(self, buffer: Buffer) -> Iterator[None]:
        if self.stream is None:
            yield
            return
        self.stream.wait_event(buffer.free)
        with torch.cuda.stream(self.stream):
            yield
        buffer.ready = self.stream.record_event()

    def _now(self) -> Any:
        return None if self.stream is None else torch.cuda.current_stream(self.device).record_event()

    def _await(self, buffer: Buffer) -> None:
        if buffer.ready is not None:
            torch.cuda.current_stream(self.device).wait_event(buffer.ready)

    def _holding(self, layer: int) -> Buffer | None:
        return next((buffer for buffer in self.buffers if buffer.layer == layer), None)


def roomy(room: int, mean: int) -> int:
    """Give the slack for an answer of `room` tokens: all of them, unless copying it each time would cost too much."""
    return min(room, max(LEAST, mean // GROWTH))


@contextmanager
def offloading(device: torch.device, layers: int, resident: int) -> Iterator[Offload]:
    """Give what holds a model's full cache in the CPU's memory, inside the block; see `Offload`."""
    if resident >= layers:
        raise ValueError(
            f"`resident` must be below the model's {layers} layers, got {resident}; leave out `offload` to keep all"
        )
    offload = Offload(device, layers, resident=resident)
    try:
        yield offload
    finally:
        offload.close()


def check_offload(offload: bool, resident: int) -> None:
    """Refuse settings that mean nothing."""
    if not isinstance(offload, bool):
        raise ValueError(f"`offload` must be True or False, got {offload!r}")
    if isinstance(resident, bool) or not isinstance(resident, int) or resident < 0:
        raise ValueError(f"`resident` must be a whole number of layers, 0 or more, got {resident!r}")
    if resident and not offload:
        raise ValueError(f"`resident` must be 0 without `offload=True`, got {resident}: then all layers are on the GPU")
