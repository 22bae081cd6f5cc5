"""Evidence: what a number rests on, and which file says so."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Kind = Literal["measured", "predicted", "bound", "account", "given", "missing"]


@dataclass(frozen=True)
class Evidence:
    """kind: measured on this GPU; predicted, from its calibration; bound, what bytes and the datasheet allow at best;
    account, counted from the config; given, by the person who asks; missing.

    what: in words. file, cell, commit: where it was measured.
    """

    kind: Kind
    what: str
    file: str | None = None
    cell: str | None = None
    commit: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Give it as plain data."""
        return asdict(self)

    def __str__(self) -> str:
        where = ", ".join(
            part for part in (self.file, self.cell, f"commit {self.commit}" if self.commit else None) if part
        )
        return f"{self.kind}: {self.what}" + (f" ({where})" if where else "")
