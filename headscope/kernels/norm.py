"""The RMS norm of rows (Zhang and Sennrich, 2019): as transformers does it, and as projections fold it in."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn.functional import rms_norm


@dataclass(frozen=True, eq=False)
class Norm:
    """An RMS norm before a projection. gain: [inputs]. squares: float32 [row, part], which add up to the row's."""

    gain: torch.Tensor
    squares: torch.Tensor
    eps: float


def scaled(x: torch.Tensor, gain: torch.Tensor, eps: float) -> torch.Tensor:
    """Normalise along the last axis with the rounding of transformers: x * rsqrt(mean(x^2) + eps), then the gain."""
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return gain * wide.to(x.dtype)


def normed(x: torch.Tensor, norm: Norm | None) -> torch.Tensor:
    """Normalise rows [row, inputs]; None leaves them."""
    return x if norm is None else scaled(x, norm.gain, norm.eps)


def normed_at_once(x: torch.Tensor, norm: Norm | None) -> torch.Tensor:
    """Normalise many rows on a GPU in one of PyTorch's kernels, which finds their squares itself."""
    if x.is_cuda and norm is not None:
        return rms_norm(x, x.shape[-1:], norm.gain, norm.eps)
    return normed(x, norm)


def sum_squares(x: torch.Tensor) -> torch.Tensor:
    """Give the squares of rows in one part: [row, inputs] -> float32 [row, 1]."""
    return x.float().pow(2).sum(-1, keepdim=True)
