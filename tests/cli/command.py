"""What a command line left behind."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """code: the exit code. out, err: what it wrote."""

    code: int
    out: str
    err: str
