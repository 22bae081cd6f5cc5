"""Room: what a rule may divide, once every head has its window."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

MOST = 2**40  # fp64 holds the shares of so many tokens to a ten-thousandth of a token


@dataclass(frozen=True)
class Room:
    """layers, kv_heads: the shape. window: tokens that every head keeps. spare: tokens to divide beyond the windows.

    most: the most of these that one head can keep.
    """

    layers: int
    kv_heads: int
    window: int
    spare: int
    most: int

    @classmethod
    def of(cls, scores: Tensor, total: int, window: int, prompt: int | None) -> Room:
        """Make room for the heads of `scores` [layer, kv]: no window or total beyond the prompt counts."""
        layers, kv_heads = scores.shape
        heads = layers * kv_heads
        if total < heads * window:
            raise ValueError(
                f"`window` must be at most `per_head`, the average of what a head keeps: got window {window} and "
                f"{total / heads:.6g} tokens a head; lower `window` or ask for more tokens"
            )
        window = window if prompt is None else min(window, prompt)
        spare = (total if prompt is None else min(total, heads * prompt)) - heads * window
        if spare > MOST:
            raise ValueError(f"at most {MOST} tokens can be divided exactly, got {spare}; give the `prompt`'s length")
        return cls(layers, kv_heads, window, spare, spare if prompt is None else prompt - window)

    @property
    def heads(self) -> int:
        """Number of (layer, KV head) pairs."""
        return self.layers * self.kv_heads

    @property
    def base(self) -> float:
        """Mean of a head's tokens beyond the window."""
        return self.spare / self.heads

    def kept(self, beyond: Tensor) -> Tensor:
        """Add the windows: int64 [head] beyond them -> int64 [layer, kv] kept."""
        return beyond.view(self.layers, self.kv_heads) + self.window
