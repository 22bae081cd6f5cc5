"""The report: what speculation did, and where its time went."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import torch


@dataclass
class Report:
    """One call. Rows that are done already do not count.

    proposed, accepted: draft tokens, those after a first rejection counting as proposed. reached, stood: for each
    place in a block, how often all before it stood, and how often it did too. lengths: for each number of accepted
    tokens, how many blocks had it. rounds: passes of the dense model after the prompt's. row_rounds: the same, each row
    that went on counted once. blocks: proposed and accepted tokens of each of those, in order. emitted: tokens of the
    answers. gammas: draft tokens of each round. prompt_s, draft_s, verify_s, rest_s: seconds. whole_bytes, kept_bytes:
    of both caches, as allocated. staged_bytes: of the buffers through which an offloaded cache comes to the device; 0:
    it was there. graphed: whether the steps ran as CUDA graphs. path: what ran, or why not.
    """

    draft: str = ""
    gamma: int | str = 0
    proposed: int = 0
    accepted: int = 0
    reached: list[int] = field(default_factory=list)
    stood: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    rounds: int = 0
    row_rounds: int = 0
    blocks: list[tuple[int, int]] = field(default_factory=list)
    emitted: int = 0
    gammas: list[int] = field(default_factory=list)
    refreshes: int = 0
    prompt_s: float = 0.0
    draft_s: float = 0.0
    verify_s: float = 0.0
    rest_s: float = 0.0
    whole_bytes: int = 0
    kept_bytes: int = 0
    staged_bytes: int = 0
    graphed: bool = False
    path: str = ""

    @property
    def acceptance(self) -> float | None:
        """Accepted / proposed; None where nothing was proposed."""
        return self.accepted / self.proposed if self.proposed else None

    @property
    def by_place(self) -> list[float | None]:
        """For each place in a block, the share of its tokens that stood, given that all before them did."""
        pairs = zip(self.stood, self.reached, strict=True)
        return [stood / reached if reached else None for stood, reached in pairs]

    @property
    def tokens_per_round(self) -> float | None:
        """Tokens that a row gets from a pass of the dense model, on average."""
        return (self.accepted + self.row_rounds) / self.row_rounds if self.row_rounds else None

    def count(self, proposed: int, accepted: int) -> None:
        """Count one row's block."""
        self.row_rounds += 1
        self.blocks.append((proposed, accepted))
        self.proposed += proposed
        self.accepted += accepted
        for counts, size in ((self.reached, proposed), (self.stood, proposed), (self.lengths, proposed + 1)):
            counts.extend([0] * (size - len(counts)))
        for place in range(proposed):
            self.reached[place] += place <= accepted
            self.stood[place] += place < accepted
        self.lengths[accepted] += 1

    def to_json(self) -> dict[str, Any]:
        """Give all of it as plain data."""
        derived = {"acceptance": self.acceptance, "tokens_per_round": self.tokens_per_round, "by_place": self.by_place}
        return asdict(self) | derived


class Clock:
    """Measures parts of rounds: on a GPU by events on its stream, to be read once the device has been waited for."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.parts: list[tuple[str, Any, Any]] = []

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Measure what is inside the block under a name."""
        begin = self._now()
        yield
        self.parts.append((name, begin, self._now()))

    def read(self) -> dict[str, float]:
        """Give the seconds of each name since the last time, and forget them."""
        seconds: dict[str, float] = {}
        for name, begin, end in self.parts:
            seconds[name] = seconds.get(name, 0.0) + self._between(begin, end)
        self.parts.clear()
        return seconds

    def _now(self) -> Any:
        if self.device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        return event

    def _between(self, begin: Any, end: Any) -> float:
        return end - begin if isinstance(begin, float) else begin.elapsed_time(end) / 1000
