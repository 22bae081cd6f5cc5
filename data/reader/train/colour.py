"""Ink and paper: masks of drawn pages become normalised pictures, on the device that trains."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from common import MEAN, STD


def colour(mask: torch.Tensor) -> torch.Tensor:
    """Give pictures [page, 3, height, width] with random ink and paper, a soft gradient, blur and noise.

    `mask` is the ink, uint8 [page, height, width].
    """
    pages, height, width = mask.shape
    ink, paper = ink_and_paper(pages, mask.device)
    shade = gradient(pages, height, width, mask.device)
    alpha = blur(mask[:, None].float() / 255)
    noise = torch.randn(pages, 3, height, width, device=mask.device) * (0.05 * each(pages, mask.device))
    picture = paper * (1 - alpha) + ink * alpha + shade + noise
    mean, std = (torch.tensor(values, device=mask.device)[None, :, None, None] for values in (MEAN, STD))
    return (picture.clamp(0, 1) - mean) / std


def each(pages: int, device: torch.device, channels: int = 1) -> torch.Tensor:
    """Give a random number in 0..1 for every page, [page, channel, 1, 1]."""
    return torch.rand(pages, channels, 1, 1, device=device)


def ink_and_paper(pages: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Give colours [page, 3, 1, 1]: 40 % dark on near white, the others any two, pushed apart to a contrast of 0.35."""
    paper, ink = each(pages, device, 3), each(pages, device, 3)
    plain = (each(pages, device) < 0.4).float()
    paper = plain * (0.92 + 0.08 * paper) + (1 - plain) * paper
    ink = plain * 0.25 * ink + (1 - plain) * ink
    contrast = (paper - ink).mean(1, keepdim=True)
    sign = torch.where(contrast >= 0, 1.0, -1.0)
    missing = (0.35 - contrast.abs()).clamp(min=0)
    return (ink - sign * missing * 1.2).clamp(0, 1), (paper + sign * missing * 0.6).clamp(0, 1)


def gradient(pages: int, height: int, width: int, device: torch.device) -> torch.Tensor:
    """Give a soft change of brightness along both axes, [page, 1, height, width]."""
    across = torch.linspace(-1, 1, width, device=device)[None, None, None]
    down = torch.linspace(-1, 1, height, device=device)[None, None, :, None]
    return (each(pages, device) - 0.5) * 0.12 * across + (each(pages, device) - 0.5) * 0.12 * down


def blur(alpha: torch.Tensor) -> torch.Tensor:
    """Blur half of the pages a little, [page, 1, height, width]."""
    soft = F.avg_pool2d(F.pad(alpha, (1, 1, 1, 1)), 3, 1)
    amount = each(len(alpha), alpha.device)
    amount = torch.where(amount < 0.5, torch.zeros_like(amount), amount * 0.8)
    return alpha * (1 - amount) + soft * amount
