"""Forward: one step of a model, some new tokens of every row, on segments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from headscope.cache.segments import Segments


class Forward(Protocol):
    """A model's forward pass over new tokens.

    ids: int64 [row, new]. positions: int64 [row, new], rotary positions of text, equal on every axis of M-RoPE.
    layers: one Segments for each decoder layer, or for the first few: then the last norm and the head follow them.
    Appends the new tokens' keys and values to all segments, whose lengths on the device grow by `new`; query i of `new`
    sees all that stands before it. Gives logits [row, new, token] in the model's dtype.
    """

    def __call__(self, ids: Tensor, positions: Tensor, layers: Sequence[Segments]) -> Tensor:
        """Run the step."""
