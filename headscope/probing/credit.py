"""Credit: which tokens of an answer are scored, and the cells each of them should look at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headscope.families import Picture
from headscope.page import Word
from headscope.probing.align import Answer, align, match_pieces

MATCHES: dict[str, Callable[[Answer, Sequence[Word]], list[int | None]]] = {"aligned": align, "paper": match_pieces}
CELLS = ("fine", "both")


@dataclass(frozen=True)
class Credit:
    """tokens: indices of the credited tokens. words: the word of each. cells: int64 positions of each, never empty."""

    tokens: list[int]
    words: list[int]
    cells: list[Tensor]


def word_cells(words: Sequence[Word], picture: Picture, cells: str = "fine") -> list[Tensor]:
    """Give each word's positions in the prompt, int64 [cell]: empty when the processor cropped it away.

    cells: `fine` counts a picture's fine grid, `both` its thumbnail too, in families that send one.
    """
    grids = [picture.fine] if cells == "fine" or picture.base is None else [picture.fine, picture.base]
    return [torch.cat([grid.find(word.box) for grid in grids]).unique() for word in words]


def credit(answer: Answer, words: Sequence[Word], places: Sequence[Tensor], match: str = "aligned") -> Credit:
    """Find the tokens that read a word with at least one cell. match: `aligned` or `paper`, see `probing.align`."""
    found = [
        (token, word)
        for token, word in enumerate(MATCHES[match](answer, words))
        if word is not None and len(places[word])
    ]
    return Credit([token for token, _ in found], [word for _, word in found], [places[word] for _, word in found])
