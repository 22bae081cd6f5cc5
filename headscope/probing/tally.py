"""The tally: the statistics of one page, for every head."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Sums:
    """Sums over one page's rows, on the CPU.

    hit, mass: float64 [layer, head]. first_key, first_cell: int64 [layer, head], arg maxes on key 0 and on a picture's
    first cell.
    """

    hit: Tensor
    mass: Tensor
    first_key: Tensor
    first_cell: Tensor

    @classmethod
    def none(cls, layers: int, heads: int) -> Sums:
        """Give the sums over no rows."""
        zero = torch.zeros(layers, heads, dtype=torch.float64)
        return cls(zero, zero, zero.long(), zero.long())


class Tally:
    """Visits attention rows and adds up how well each head looks at each row's cells.

    A row's hit is 1/|cells| when its arg max lies in its cells (SparseMM, section 3.1; the arg max is over all keys,
    ties go to the lowest); its mass is the attention inside its cells. All sums stay on their layer's device until
    `sums`.
    """

    def __init__(self, layers: int, cells: list[Tensor], tokens: int, first_cells: list[int]) -> None:
        """Take each row's cells (int64, never empty), the sequence's length and each picture's first cell."""
        self._member = torch.zeros(len(cells), tokens, dtype=torch.bool)
        for row, positions in enumerate(cells):
            self._member[row, positions] = True
        self._first_cells = torch.tensor(first_cells, dtype=torch.int64)
        self._layers: list[list[Tensor]] = [[] for _ in range(layers)]

    def __call__(self, layer: int, first: int, attention: Tensor) -> None:
        """Add rows `first` and on of a layer: attention float32 [head, row, key]."""
        self._member = self._member.to(attention.device)
        self._first_cells = self._first_cells.to(attention.device)
        member = self._member[first : first + attention.shape[1]]
        best = first_argmax(attention)
        sums = [
            hits(best, member),
            (attention * member).sum(dim=-1).double().sum(dim=-1),
            (best == 0).double().sum(dim=-1),
            torch.isin(best, self._first_cells).double().sum(dim=-1),
        ]
        self._layers[layer].append(torch.stack(sums))

    def sums(self) -> Sums:
        """Give the sums over all rows seen: at least one of each layer."""
        layers = [torch.stack(parts).sum(dim=0).cpu() for parts in self._layers]
        hit, mass, first_key, first_cell = torch.stack(layers, dim=1)
        return Sums(hit, mass, first_key.long(), first_cell.long())


def first_argmax(attention: Tensor) -> Tensor:
    """Give the index of each row's largest value, the lowest of equals: int64 [head, row] from [head, row, key]."""
    places = torch.arange(attention.shape[-1], dtype=torch.int32, device=attention.device)
    best = attention == attention.amax(dim=-1, keepdim=True)
    return torch.where(best, places, attention.shape[-1]).amin(dim=-1).long()


def hits(best: Tensor, member: Tensor) -> Tensor:
    """Sum 1/|cells| over the rows whose arg max lies in their cells: float64 [head].

    best: int64 [head, row]. member: bool [row, key], each row's cells.
    """
    inside = member[torch.arange(member.shape[0], device=member.device), best]
    return (inside / member.sum(dim=-1).double()).sum(dim=-1)
