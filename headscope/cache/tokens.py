"""Tokens: which of a sequence's tokens the segments of one layer hold."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(eq=False)
class Tokens:
    """The logical side of the segments: places in the sequence, padding counted as the model counts it.

    prompt: logical length of the prompt. seen: of everything so far. positions: int32 [kept], the prompt's kept tokens,
    segment by segment. kept: int32 [row, kv], how many of them each segment holds. present: bool [row, appended],
    False where an appended token was padding; None: nowhere. dropped: int32 [row, kv], tokens at the front of a segment
    that a sliding window has passed and that are gone; None: none. floor: the first logical place that may be held.
    """

    prompt: int
    seen: int
    positions: Tensor
    kept: Tensor
    present: Tensor | None = None
    dropped: Tensor | None = None
    floor: int = 0

    @property
    def appended(self) -> int:
        """Logical length of what came after the prompt."""
        return self.seen - self.prompt

    def add(self, new: int, valid: Tensor | None) -> None:
        """Count new tokens. valid: bool [row, new], False on padding; None: no padding."""
        if valid is not None or self.present is not None:
            rows = self.kept.shape[0]
            device = self.kept.device
            before = self.present
            if before is None:
                before = torch.ones(rows, self.appended, dtype=torch.bool, device=device)
            if valid is None:
                valid = torch.ones(rows, new, dtype=torch.bool, device=device)
            self.present = torch.cat([before, valid], dim=1)
        self.seen += new

    def held_before(self, limit: int) -> Tensor:
        """Count the tokens of each segment that stand before a logical place: int32 [row, kv]."""
        held = self.kept
        if limit < self.prompt:
            held = _per_segment(self.positions < limit, self.kept)
        later = max(limit - self.prompt, 0)
        held = held + (later if self.present is None else self.present[:, :later].sum(-1, keepdim=True))
        if self.dropped is not None:
            held = (held - self.dropped).clamp_min(0)
        return held.to(torch.int32)

    def cut(self, length: int) -> None:
        """Forget everything from a logical place on."""
        if length < self.prompt:
            stays = self.positions < length
            self.kept = _per_segment(stays, self.kept)
            self.positions = self.positions[stays]
            self.prompt = length
        if self.present is not None:
            self.present = self.present[:, : length - self.prompt]
        self.seen = length


def _per_segment(chosen: Tensor, counts: Tensor) -> Tensor:
    """Count the chosen among the entries of each segment: bool [kept] -> int32 [row, kv]."""
    segment = torch.repeat_interleave(counts.flatten().long(), output_size=len(chosen))
    found = torch.zeros(counts.numel(), dtype=torch.int32, device=counts.device)
    return found.index_add_(0, segment, chosen.to(torch.int32)).view(counts.shape)
