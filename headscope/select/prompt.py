"""A prompt, as one layer sees it: what a selection chooses from."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Prompt:
    """One layer's view of the prompts of a batch.

    query: [row, head, query, dim], the last queries of the prompt, at least as many as a selection looks from.
    key: [row, kv, token, dim]. scaling: of the logits.
    valid: bool [row, token], False on padding, which stands on the left. None: no padding.
    visual: bool [row, token], True on cells of pictures and videos. None: the prompt has none.
    layer: number of the layer. span: keys that a sliding-window layer sees, itself included; None: all.
    """

    query: Tensor
    key: Tensor
    scaling: float
    valid: Tensor | None = None
    visual: Tensor | None = None
    layer: int = 0
    span: int | None = None

    @property
    def rows(self) -> int:
        """Sequences in the batch."""
        return self.key.shape[0]

    @property
    def kv_heads(self) -> int:
        """KV heads of the layer."""
        return self.key.shape[1]

    @property
    def tokens(self) -> int:
        """Length of the prompts, padding included."""
        return self.key.shape[2]

    @property
    def there(self) -> Tensor:
        """Say which tokens are no padding: bool [row, token]."""
        if self.valid is not None:
            return self.valid
        return torch.ones(self.rows, self.tokens, dtype=torch.bool, device=self.key.device)

    @property
    def ranks(self) -> Tensor:
        """Number each row's tokens from 0, padding below 0 left of it: int64 [row, token]."""
        places = torch.arange(self.tokens, device=self.key.device)
        return places - (self.tokens - self.there.sum(-1, keepdim=True))

    def last(self, tokens: int) -> Tensor:
        """Say which tokens are among the last so many and no padding: bool [row, token]."""
        places = torch.arange(self.tokens, device=self.key.device)
        return (places >= self.tokens - tokens) & self.there
