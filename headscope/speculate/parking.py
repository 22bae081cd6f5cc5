"""Parking: a layer's part of a prompt in the CPU's memory, dense, while more of the prompt is to come."""

from __future__ import annotations

import torch
from torch import Tensor

from headscope.cache.host import Host

Dense = tuple[Tensor, Tensor]


class Parking:
    """Dense keys and values between two pieces of a prompt: token by token, so that what is new lies together.

    capacity: tokens of the whole prompt, padding and slack included. host: the memory, once there is something in it.
    """

    def __init__(self, device: torch.device, capacity: int) -> None:
        self.device, self.capacity, self.tokens = device, capacity, 0
        self.host: Host | None = None

    def put(self, key: Tensor, value: Tensor) -> Dense:
        """Take keys and values [row, kv, token, dim] of the prompt so far; give them as they lie in memory."""
        rows, kvs, seen, dim = key.shape
        if self.host is None:
            self.host = Host(self.capacity * rows * kvs, dim, key.dtype, self.device)
        held, self.tokens = self.tokens, seen
        parked = []
        for own, given in ((self.host.key, key), (self.host.value, value)):
            laid = own.view(-1, rows, kvs, dim)
            laid[held:seen].copy_(given[:, :, held:].permute(2, 0, 1, 3).contiguous(), non_blocking=True)
            parked.append(laid[:seen].permute(1, 2, 0, 3))
        return parked[0], parked[1]

    def get(self, waiting: Dense) -> Dense:
        """Bring back what `put` gave."""
        if not self.tokens:
            return waiting  # of the caller's own cache
        key, value = (
            parked.permute(2, 0, 1, 3).to(self.device, non_blocking=True).permute(1, 2, 0, 3) for parked in waiting
        )
        return key, value
