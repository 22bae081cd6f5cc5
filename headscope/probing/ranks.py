"""Ranks: the processes of a torchrun that share a probe's pages."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

Item = TypeVar("Item")
PATIENCE = timedelta(days=7)  # one rank may be slow; torchrun itself ends the others when one dies


@dataclass(frozen=True)
class Ranks:
    """This process's place among all. rank: 0..world - 1. local: its number on this host, which picks its device."""

    rank: int = 0
    world: int = 1
    local: int = 0

    @classmethod
    def from_environment(cls) -> Ranks:
        """Read the place that torchrun gives (RANK, WORLD_SIZE, LOCAL_RANK); alone without it."""
        return cls(*(int(os.environ.get(name, default)) for name, default in PLACES.items()))

    @property
    def first(self) -> bool:
        """Whether this process speaks and writes for all."""
        return self.rank == 0

    def share(self, items: Sequence[Item]) -> Sequence[Item]:
        """Give this process's part."""
        return items[self.rank :: self.world]

    def own_file(self, path: str | Path | None) -> Path | None:
        """Give this process's own variant of a path."""
        if path is None or self.world == 1:
            return None if path is None else Path(path)
        return Path(f"{path}.{self.rank}-of-{self.world}")

    def gather(self, *parts: list) -> tuple[list, ...]:
        """Give the lists of all processes joined, on each of them; on CPUs, with no shared folder needed."""
        if self.world == 1:
            return parts
        import torch.distributed as dist

        if not dist.is_initialized():
            dist.init_process_group("gloo", timeout=PATIENCE)
        everyone: list[tuple[list, ...]] = [()] * self.world
        dist.all_gather_object(everyone, parts)
        return tuple([item for part in parts_of_one for item in part] for parts_of_one in zip(*everyone, strict=True))


PLACES = {"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0}
ALONE = Ranks()
