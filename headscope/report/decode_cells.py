"""The cells of a decode result: how fast each way of running a step was, by shape, batch and context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

STOCK = "transformers"
Row = dict[str, Any]
Cell = tuple[str, int, int]  # shape, batch, context


@dataclass(frozen=True)
class Cells:
    """rows: as `headscope bench decode` writes them. weights_ms: of each shape, at the copy's bandwidth (TB/s)."""

    rows: list[Row]
    weights_ms: dict[str, float]
    copy: float

    @classmethod
    def of(cls, document: Row) -> Cells:
        """Read a result file's object."""
        known = document["shapes"]
        (copy,) = (each["copy_tb_per_s"] for each in known if "copy_tb_per_s" in each)
        return cls(document["cells"], {each["shape"]: each["weights_ms"] for each in known if "shape" in each}, copy)

    @property
    def cells(self) -> list[Cell]:
        """All cells, each once, as measured."""
        return list(dict.fromkeys((row["shape"], row["batch"], row["context"]) for row in self.rows))

    @property
    def budgets(self) -> list[int]:
        """Tokens a head, from few to many."""
        return sorted({row["cache"] for row in self.rows} - {"full"})

    def stock(self, cell: Cell) -> Row | None:
        """Give the step of transformers as people run it."""
        return next((row for row in self._timed(cell, "full") if row["attention"] == STOCK), None)

    def full(self, cell: Cell) -> Row | None:
        """Give the graphed step on the full cache, with the fastest attention."""
        graphed = [row for row in self._timed(cell, "full") if row["attention"] != STOCK]
        return min(graphed, key=lambda row: row["ms_per_token"], default=None)

    def budget(self, cell: Cell, per_head: int) -> Row | None:
        """Give the graphed step on a budget."""
        return next(iter(self._timed(cell, per_head)), None)

    def loses(self, cell: Cell, per_head: int) -> bool:
        """Tell whether a budget's step takes longer than the full cache's."""
        full, kept = self.full(cell), self.budget(cell, per_head)
        return full is not None and kept is not None and kept["ms_per_token"] > full["ms_per_token"]

    def failure(self, cell: Cell) -> str | None:
        """Say why there is no step on the full cache."""
        if self.full(cell) is not None:
            return None
        return next((row["failed"] for row in self._of(cell, "full") if "failed" in row), None)

    def _of(self, cell: Cell, cache: str | int) -> list[Row]:
        return [
            row for row in self.rows if (row["shape"], row["batch"], row["context"], row["cache"]) == (*cell, cache)
        ]

    def _timed(self, cell: Cell, cache: str | int) -> list[Row]:
        return [row for row in self._of(cell, cache) if "ms_per_token" in row]
