"""A histogram of magnitudes: any number of them counted in fixed memory, for quantiles of a stated resolution.

A bin is a magnitude's exponent and its first 8 bits behind the point, so it is at most 2^-8 of its values wide, and
bfloat16 values (7 bits) are counted exactly. Bins cover 2^-40 to 2^24; the first and the last take what lies outside.
"""

from __future__ import annotations

import torch
from torch import Tensor

BITS = 8
RESOLUTION = 2.0**-BITS  # width of a bin, relative to its lower edge, at most
LOWEST, HIGHEST = -40, 24  # powers of 2
BINS = (HIGHEST - LOWEST) << BITS
SHIFT = 23 - BITS  # of float32's bits
FIRST = (127 + LOWEST) << BITS


class Histogram:
    """Counts of magnitudes. counts: int64 [BINS], on the device of what is counted."""

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self.counts = torch.zeros(BINS, dtype=torch.int64, device=device)

    def add(self, values: Tensor) -> None:
        """Count some values, any shape; what is not finite counts as the largest."""
        bits = values.detach().abs().float().nan_to_num(torch.inf, torch.inf).view(torch.int32).flatten()
        self.counts += torch.bincount((bits.long() >> SHIFT).sub_(FIRST).clamp_(0, BINS - 1), minlength=BINS)

    @property
    def total(self) -> int:
        """How many values were counted."""
        return int(self.counts.sum())

    def threshold(self, sparsity: float) -> tuple[float, float]:
        """Give the threshold that this part of the values is not above, as nearly as bins allow, and the part above it.

        A threshold lies just under a bin's lower edge. Nothing is below 0: threshold 0, and all are kept.
        """
        counts = self.counts.cpu()
        below = (counts.cumsum(0) - counts).double() / max(int(counts.sum()), 1)
        edge = int((below - sparsity).abs().argmin())
        if edge == 0 or below[edge] == 0:
            return 0.0, 1.0
        lower = torch.tensor([(edge + FIRST) << SHIFT], dtype=torch.int32).view(torch.float32)
        return float(torch.nextafter(lower, torch.zeros(1))), 1 - float(below[edge])
