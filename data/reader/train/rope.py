"""Rotary positions, as Qwen2-VL has them in its text and vision towers."""

from __future__ import annotations

import torch


def frequencies(dim: int, theta: float, device: torch.device) -> torch.Tensor:
    """Give the inverse frequencies of a rotation over `dim` channels, [dim / 2]."""
    return 1.0 / (theta ** (torch.arange(0, dim, 2, device=device).float() / dim))


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate the two halves of the last axis against each other."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin
