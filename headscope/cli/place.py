"""A place: where one job's files go.

Relative paths mean the folder that the person stands in. In a multirun each job writes into a folder of its own; only
the parts of a sharded run go beside ``out``, named ``<stem>.<i>-of-<n>.json``.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Place:
    """folder: the job's own in a multirun, else None. job: its overrides. swept: the keys the multirun sweeps over."""

    folder: Path | None = None
    job: tuple[str, ...] = ()
    swept: tuple[str, ...] = ()

    def result(self, out: Path, shard: str | None = None) -> Path:
        """Say where the result named ``out`` goes."""
        if not out.name:
            raise ValueError(f"`out` must be a file, got the folder {out}")
        if shard is not None:
            index, _, count = shard.partition("/")
            out = out.with_name(f"{out.stem}.{index}-of-{count}{out.suffix}")
        alone = shard is not None and set(self.swept) <= {"shard"}
        return out if self.folder is None or alone else self.folder / out.name

    def state(self, out: Path, shard: str | None = None) -> Path:
        """Say where a run keeps its progress: always beside ``out``, so that the same command finds it again."""
        name = self.result(out, shard).stem
        if self.folder is not None:
            name += "." + hashlib.sha256("\n".join(sorted(self.job)).encode()).hexdigest()[:8]
        return out.with_name(f"{name}.progress.jsonl")


def check_writable(paths: Sequence[Path]) -> None:
    """Refuse, before any work, files that could not be written at the end, or would overwrite each other.

    Makes nothing.
    """
    check_apart(paths)
    for path in paths:
        if path.exists() and not path.is_file():
            kind = "the folder " if path.is_dir() else "the device "
            raise ValueError(f"`out` must be a file, got {kind}{path}")
        folder = next(parent for parent in path.absolute().parents if parent.exists())
        if not folder.is_dir():
            raise ValueError(f"cannot write {path}: {folder} is not a folder")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(f"cannot write {path}: no permission to write in {folder}")


def check_apart(paths: Sequence[Path]) -> None:
    """Refuse one path for two files."""
    for at, path in enumerate(paths):
        if path.absolute() in [before.absolute() for before in paths[:at]]:
            raise ValueError(f"each file must have a path of its own, {path} was given for two; give another `out`")
