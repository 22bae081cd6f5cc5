"""The tunings of verify attention: how the kernel is cut and pipelined for a head dim and a number of rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Tuning:
    """How the split runs.

    rows: pairs of a program, (head of the group, query). tile: tokens of a key tile. warps, stages: of a program's
    pipeline. shares: of the keys, per multiprocessor. registers: most of a thread, so that as many programs as shares
    fit a multiprocessor; None: no limit.
    """

    rows: int
    tile: int
    warps: int
    stages: int
    shares: int
    registers: int | None = None


# The fastest of those tried on an H200, in bf16, at 540 MB a call, for 63, 70 and 112 pairs. Up to 16 pairs, 128 was
# measured, 64 and 256 have decode attention's tiles; head dim 32 has those of 64. Rows that are not whole are padded:
# 28 pairs are fastest as 64 rows, since loads are the limit, and above 64 a product of 16 rows beside the one of 64 was
# slower than one of 128 rows by twice the warps.
TUNINGS = {
    32: (Tuning(16, 128, 4, 2, 3), Tuning(64, 64, 4, 3, 3, 168), Tuning(128, 64, 8, 3, 2, 128)),
    64: (Tuning(16, 128, 4, 2, 3), Tuning(64, 64, 4, 3, 3, 168), Tuning(128, 64, 8, 3, 2, 128)),
    80: (Tuning(64, 64, 4, 3, 2), Tuning(128, 64, 8, 3, 2, 128)),
    96: (Tuning(64, 32, 4, 3, 3, 168), Tuning(128, 64, 8, 3, 2, 128)),
    128: (Tuning(16, 64, 4, 2, 3), Tuning(64, 64, 4, 3, 2), Tuning(128, 64, 8, 3, 1)),
    256: (Tuning(16, 32, 4, 2, 3), Tuning(64, 16, 4, 3, 2), Tuning(128, 64, 8, 2, 1)),
}
EXACT = Tuning(16, 16, 4, 2, 3)  # for fp32, whose products the matrix units do not take


def tuning(dim: int, pairs: int, dtype: torch.dtype) -> Tuning:
    """Give the tuning for so many pairs; those of another head dim are the next wider one's."""
    if dtype == torch.float32:
        return EXACT
    tuned = TUNINGS[min((own for own in TUNINGS if own >= dim), default=max(TUNINGS))]
    return next((each for each in tuned if each.rows >= pairs), tuned[-1])
