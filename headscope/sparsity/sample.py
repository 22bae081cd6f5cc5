"""A sample: one sequence that thresholds are calibrated on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Sample:
    """A sequence as the decoder stack takes it, batch 1.

    arguments: of the stack's forward: `input_ids` int64 [1, token], or `inputs_embeds` [1, token, width] and what
    belongs to them. first: the first token that counts. Those before are a prompt, which decoding leaves dense.
    """

    arguments: dict[str, Any]
    first: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.first < self.tokens:
            raise ValueError(f"`first` must be one of the sample's {self.tokens} tokens, got {self.first}")

    @property
    def tokens(self) -> int:
        """Length of the sequence."""
        given = self.arguments.get("input_ids")
        return int((self.arguments["inputs_embeds"] if given is None else given).shape[1])

    @property
    def hash(self) -> str:
        """sha256 of the sequence, the same on every device."""
        digest = hashlib.sha256(str(self.first).encode())
        for name in sorted(self.arguments):
            value = self.arguments[name]
            if isinstance(value, Tensor):
                whole = value.detach().cpu()
                raw = whole.double() if whole.is_floating_point() else whole.long()
                digest.update(f"{name}{list(value.shape)}".encode() + raw.contiguous().numpy().tobytes())
        return digest.hexdigest()


def cut_text(tokenizer: Any, text: str, *, context: int = 512, tokens: int | None = None) -> Iterator[Sample]:
    """Cut a text into samples of `context` tokens; a last one shorter than half of that is left out.

    tokens: how many to take at most, from the front; None: all. Raises ValueError for a text without tokens.
    """
    for name, value in {"context": context, "tokens": tokens}.items():
        if value is not None and value < 1:
            raise ValueError(f"`{name}` must be a whole number of tokens above 0, got {value}")
    ids = torch.tensor(tokenizer(text, add_special_tokens=False)["input_ids"][:tokens], dtype=torch.int64)
    if not len(ids):
        raise ValueError("`text` must have at least one token, got none")
    for place, part in enumerate(ids.split(context)):
        if place == 0 or 2 * len(part) >= context:
            yield Sample({"input_ids": part[None]})
