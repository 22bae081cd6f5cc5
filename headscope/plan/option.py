"""An option: one way to decode, how fast it is, what it needs, what it costs in quality, and on what evidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headscope.accounting.crossover import Keep
from headscope.plan.evidence import Evidence

DENSE = Keep(1.0, 1.0)


@dataclass(frozen=True)
class Option:
    """keep: what is read. gamma: draft tokens of a speculative round, 0: none. ms: of a token of one sequence.

    memory_bytes: weights and caches. lossless: the dense model's own answers. admitted: whether its quality is shown to
    be within what is asked. fits: in the GPU's memory; None: not known.
    """

    keep: Keep
    gamma: int
    ms: float
    memory_bytes: float
    lossless: bool
    admitted: bool
    fits: bool | None
    speed: Evidence
    quality: Evidence
    memory: Evidence

    @property
    def name(self) -> str:
        """Say it in words."""
        if self.gamma:
            return f"speculation, {self.gamma} drafts on {self.keep.kv:.0%} of the cache"
        parts = [f"{self.keep.act:.0%} of activations"] * (self.keep.act < 1)
        parts += [f"{self.keep.kv:.0%} of the cache"] * (self.keep.kv < 1)
        return ", ".join(parts) or "dense"

    @property
    def usable(self) -> bool:
        """Whether it may be recommended."""
        return self.admitted and self.fits is not False

    def to_json(self) -> dict[str, Any]:
        """Give it as plain data."""
        return {
            "name": self.name,
            "keep_act": self.keep.act,
            "keep_kv": self.keep.kv,
            "gamma": self.gamma,
            "ms_per_token": round(self.ms, 4),
            "memory_bytes": round(self.memory_bytes),
            "lossless": self.lossless,
            "admitted": self.admitted,
            "fits": self.fits,
            "speed": self.speed.to_json(),
            "quality": self.quality.to_json(),
            "memory": self.memory.to_json(),
        }
