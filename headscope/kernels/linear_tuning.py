"""How projections of a few rows run: what was fastest for each kind."""

from __future__ import annotations

from dataclasses import dataclass

SMALL_BYTES = 100e6  # of weights: below, a call ends before deep pipelines pay


@dataclass(frozen=True)
class Tuning:
    """How a projection runs: outputs and inputs of a tile, warps, stages, programs per multiprocessor at least."""

    out: int = 32
    inputs: int = 128
    warps: int = 2
    stages: int = 4
    programs: int = 3


def tuning(rows: int, kind: str, weight_bytes: int) -> Tuning:
    """Give what was fastest on an H200 in bf16, on the projections of 7B and 8B models."""
    if rows == 1:
        if kind == "gate_up":
            return Tuning(16, 256, 4, 4, 4)
        return Tuning(4, 512, 4, 1, 4) if weight_bytes < SMALL_BYTES else Tuning(4, 512, 2, 3, 4)
    if rows > 16:
        return Tuning(32, 128, 2, 4, 3)
    return Tuning(32, 128, 2, 4, 2) if kind == "gate_up" else Tuning(32, 128, 2, 5, 3)
