"""A page's record: what one probed page adds to the scores, kept exactly so that parts can be merged."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

MATRICES = {"hit": torch.float64, "mass": torch.float64, "first_key": torch.int64, "first_cell": torch.int64}
COUNTS = ("words", "cropped", "tokens", "credited")
STATISTICS = ("hit", "mass")


@dataclass(frozen=True, eq=False)
class PageRecord:
    """One decoded and probed page.

    hash: of the decoded picture (`page.image.content_hash`). words: word boxes on the page. cropped: words without a
    cell.
    tokens: answer tokens seen. credited: those that were aligned with a word.
    hit, mass: float64 [layer, head], sums over the credited tokens. first_key, first_cell: int64 [layer, head], how
    many of the credited tokens' arg maxes fell on key 0 and on the first cell of a picture.
    """

    name: str
    hash: str
    words: int
    cropped: int
    tokens: int
    credited: int
    hit: Tensor
    mass: Tensor
    first_key: Tensor
    first_cell: Tensor

    def __post_init__(self) -> None:
        for key, dtype in MATRICES.items():
            object.__setattr__(self, key, self._matrix(key, dtype))
        for key in COUNTS:
            object.__setattr__(self, key, self._count(key))

    def _count(self, key: str) -> int:
        value = getattr(self, key)
        if not isinstance(value, int) or value < 0:
            raise ValueError(f"page {self.name!r}: `{key}` must be a whole number of at least 0, got {value!r}")
        return value

    def _matrix(self, key: str, dtype: torch.dtype) -> Tensor:
        try:
            matrix = torch.as_tensor(getattr(self, key), dtype=dtype).detach().cpu()
        except (TypeError, ValueError, RuntimeError):
            raise ValueError(f"page {self.name!r}: `{key}` must be numbers [layer, head]") from None
        if matrix.ndim != 2 or not matrix.isfinite().all() or (matrix < 0).any():
            raise ValueError(
                f"page {self.name!r}: `{key}` must be finite, non-negative numbers [layer, head], "
                f"got shape {list(matrix.shape)} with the lowest at {matrix.min() if matrix.numel() else None}"
            )
        return matrix

    @property
    def shape(self) -> tuple[int, int]:
        """Layers and query heads."""
        return self.hit.shape[0], self.hit.shape[1]

    @property
    def key(self) -> tuple[str, str]:
        """What identifies the page and orders all sums."""
        return self.hash, self.name

    def to_json(self) -> dict[str, Any]:
        """Give plain Python values from which `from_json` makes the same record, bit for bit."""
        whole = {field.name: getattr(self, field.name) for field in fields(self)}
        return whole | {key: whole[key].tolist() for key in MATRICES}

    @classmethod
    def from_json(cls, found: Any) -> PageRecord:
        """Make a record of what `to_json` gave. Missing, unknown or misshapen entries are a ValueError."""
        expected = [field.name for field in fields(cls)]
        if not isinstance(found, dict) or set(found) != set(expected):
            raise ValueError(
                f"a page: expected {expected}, found {sorted(found) if isinstance(found, dict) else found!r}"
            )
        record = cls(**found)
        for key in MATRICES:
            if (shape := tuple(getattr(record, key).shape)) != record.shape:
                raise ValueError(f"page {record.name!r}: expected `{key}` of shape {record.shape}, found {shape}")
        return record


@dataclass(frozen=True, order=True)
class FailedPage:
    """A page that could not be probed, and why, in one line."""

    name: str
    reason: str
