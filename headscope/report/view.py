"""A view: one page as heads read it, ready to be drawn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headscope.page import Box


@dataclass(frozen=True)
class TokenView:
    """One token of the answer.

    text: its piece of the answer. box: the word it was credited to, or None. cells: the cells of that word. All boxes
    are (x0, y0, x1, y1) in pixels of the page.
    """

    text: str
    box: Box | None = None
    cells: tuple[Box, ...] = ()


@dataclass(frozen=True, eq=False)
class PageView:
    """One page, its answer, and where groups of heads looked at each token.

    image: uint8 [height, width, 3].
    attention: float32 [group, token, row, column], the share of a row of attention that falls on each cell of the
    picture's grid. groups: a label for each group, such as "best head 9.4" or "mean of all others".
    area: the part of the page that the grid covers, in pixels; it may reach beyond the page (padding) or leave some of
    it out (a crop); None: just the page.
    """

    name: str
    image: np.ndarray
    answer: str
    tokens: tuple[TokenView, ...]
    attention: np.ndarray
    groups: tuple[str, ...]
    area: Box | None = None

    def __post_init__(self) -> None:
        if self.image.ndim != 3 or self.image.shape[2] != 3 or self.image.dtype != np.uint8:
            raise ValueError(
                f"`image` must be uint8 [height, width, 3]; got {self.image.dtype} {list(self.image.shape)}"
            )
        if self.attention.ndim != 4 or self.attention.shape[:2] != (len(self.groups), len(self.tokens)):
            wanted = f"[{len(self.groups)} groups, {len(self.tokens)} tokens, rows, columns]"
            raise ValueError(f"`attention` must be {wanted}; got {list(self.attention.shape)}")
        if not np.isfinite(self.attention).all() or (self.attention < 0).any():
            raise ValueError("`attention` must be finite and at least 0")

    @property
    def extent(self) -> Box:
        """The part of the page that the grid covers, in pixels."""
        height, width = self.image.shape[:2]
        return self.area or (0.0, 0.0, float(width), float(height))

    def on_word(self, token: int) -> np.ndarray:
        """Sum the attention inside the cells of a token's word: float64 [group]."""
        rows, columns = self.attention.shape[2:]
        x0, y0, x1, y1 = self.extent
        inside = np.zeros((rows, columns), dtype=bool)
        for left, top, right, bottom in self.tokens[token].cells:
            row = int(((top + bottom) / 2 - y0) / (y1 - y0) * rows)
            column = int(((left + right) / 2 - x0) / (x1 - x0) * columns)
            inside[min(max(row, 0), rows - 1), min(max(column, 0), columns - 1)] = True
        return self.attention[:, token, inside].sum(axis=-1, dtype=np.float64)
