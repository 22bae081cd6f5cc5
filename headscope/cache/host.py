"""Host: a layer's keys and values in the CPU's memory, pinned where a GPU reads and writes them."""

from __future__ import annotations

import mmap
import weakref
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

PAGE = mmap.PAGESIZE
GIB = 2**30
MEMORY = Path("/proc/meminfo")
GROUP = Path("/sys/fs/cgroup/memory.max")  # of a container


class Host:
    """Buffers in the CPU's memory. key, value: [slot, dim].

    A GPU's own allocator of pinned memory rounds up to powers of 2, which for caches is too much: these buffers are
    pinned as they are, and let go with the object. Kernels on the GPU can write them.
    """

    def __init__(self, slots: int, dim: int, dtype: torch.dtype, device: torch.device) -> None:
        self.device = device
        regions = [_region(slots * dim * dtype.itemsize) for _ in range(2)]
        if device.type == "cuda":
            _pin(regions, device)
            weakref.finalize(self, _unpin, regions, device).atexit = False
        size = slots * dim * dtype.itemsize
        self.key, self.value = (region[:size].view(dtype).view(slots, dim) for region in regions)

    @property
    def slots(self) -> int:
        """Slots of each buffer."""
        return self.key.shape[0]

    def cut(self, slots: int) -> Host:
        """Show only the first slots."""
        self.key, self.value = self.key[:slots], self.value[:slots]
        return self

    def moved(self, starts: Tensor, places: Tensor, lengths: Tensor, slots: int) -> Host:
        """Give buffers of so many slots with all segments moved: old and new starts, and lengths, [row, kv].

        Nobody may still write these buffers.
        """
        target = Host(slots, self.key.shape[1], self.key.dtype, self.device)
        numbers: Sequence[Sequence[int]] = [each.flatten().tolist() for each in (starts, places, lengths)]
        for first, to, length in zip(*numbers, strict=True):
            target.key[to : to + length] = self.key[first : first + length]
            target.value[to : to + length] = self.value[first : first + length]
        return target


def check_memory(needed: int, name: str) -> None:
    """Refuse what the CPU's memory cannot hold: MemoryError, before anything is allocated."""
    there = available_bytes()
    if there is not None and needed > there:
        raise MemoryError(
            f"`{name}` needs {needed / GIB:.1f} GiB of the CPU's memory for the full cache, and {there / GIB:.1f} GiB "
            "are available; use fewer rows or a shorter prompt"
        )


def available_bytes() -> int | None:
    """Give the CPU's memory that is available, a container's limit kept; None where the system does not say."""
    try:
        lines = dict(line.split(":", 1) for line in MEMORY.read_text(encoding="ascii").splitlines())
        there = int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None
    try:
        return min(there, int(GROUP.read_text(encoding="ascii")))
    except (OSError, ValueError):  # no such file, or "max"
        return there


def _region(size: int) -> Tensor:
    """Give whole pages of memory that nothing else lies in: uint8 [at least size]."""
    size = -(-size // PAGE) * PAGE
    memory = torch.empty(size + PAGE, dtype=torch.uint8)
    first = -memory.data_ptr() % PAGE
    return memory[first : first + size]


def _pin(regions: Sequence[Tensor], device: torch.device) -> None:
    for number, region in enumerate(regions):
        with torch.cuda.device(device):
            error = int(torch.cuda.cudart().cudaHostRegister(region.data_ptr(), region.nbytes, 0))
        if error:
            _unpin(regions[:number], device)
            raise MemoryError(
                f"`offload` could not pin {region.nbytes / GIB:.2f} GiB of the CPU's memory (CUDA error {error}); use "
                "fewer rows or a shorter prompt"
            )


def _unpin(regions: Sequence[Tensor], device: torch.device) -> None:
    """Let go of pinned memory, once the device has done with it."""
    torch.cuda.synchronize(device)
    for region in regions:
        torch.cuda.cudart().cudaHostUnregister(region.data_ptr())
