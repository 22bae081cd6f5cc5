"""The vision tower of the training twin: Qwen2-VL's, for batches of one picture size."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from common import CELL
from common import CFG as C
from rope import frequencies, rotate
from torch import nn


class VAttn(nn.Module):
    """Attention inside one picture."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(C["v_dim"], 3 * C["v_dim"])
        self.proj = nn.Linear(C["v_dim"], C["v_dim"])

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Mix the patches, [picture, patch, dim]."""
        pictures, patches, dim = x.shape
        heads = C["v_heads"]
        q, k, v = self.qkv(x).view(pictures, patches, 3, heads, dim // heads).permute(2, 0, 3, 1, 4)
        out = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v)
        return self.proj(out.transpose(1, 2).reshape(pictures, patches, dim))


class VMlp(nn.Module):
    """Feed-forward layer with the quick GELU."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(C["v_dim"], 4 * C["v_dim"])
        self.fc2 = nn.Linear(4 * C["v_dim"], C["v_dim"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Transform each patch."""
        x = self.fc1(x)
        return self.fc2(x * torch.sigmoid(1.702 * x))


class VBlock(nn.Module):
    """One block: attention, then feed-forward, each on a normalised input."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(C["v_dim"], eps=1e-6)
        self.norm2 = nn.LayerNorm(C["v_dim"], eps=1e-6)
        self.attn = VAttn()
        self.mlp = VMlp()

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Add attention and feed-forward to the stream."""
        x = x + self.attn(self.norm1(x), cos, sin)
        return x + self.mlp(self.norm2(x))


class PatchEmbed(nn.Module):
    """The patch projection; `Visual` applies it as a matrix."""

    def __init__(self) -> None:
        super().__init__()
        kernel = (C["tpatch"], C["patch"], C["patch"])
        self.proj = nn.Conv3d(3, C["v_dim"], kernel, kernel, bias=False)


class Merger(nn.Module):
    """2 x 2 patches become one token of the text tower."""

    def __init__(self) -> None:
        super().__init__()
        merged = 4 * C["v_dim"]
        self.ln_q = nn.LayerNorm(C["v_dim"], eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(merged, merged), nn.GELU(), nn.Linear(merged, C["hidden"]))


class Visual(nn.Module):
    """The whole tower."""

    def __init__(self) -> None:
        super().__init__()
        self.patch_embed = PatchEmbed()
        self.blocks = nn.ModuleList(VBlock() for _ in range(C["v_depth"]))
        self.merger = Merger()

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """Turn normalised pictures [picture, 3, height, width] into tokens [picture, cell, hidden]."""
        count, _, height, width = pictures.shape
        x = F.linear(patches_of(pictures), self.patch_embed.proj.weight.view(C["v_dim"], -1))
        cos, sin = rotation(height // C["patch"], width // C["patch"], x.device, x.dtype)
        for block in self.blocks:
            x = block(x, cos, sin)
        x = self.merger.ln_q(x).view(count, height * width // CELL**2, -1)
        return self.merger.mlp(x)


def patches_of(pictures: torch.Tensor) -> torch.Tensor:
    """Cut pictures into patches [picture, patch, value] in the processor's order: the 2 x 2 of a cell together."""
    count, _, height, width = pictures.shape
    patch, merge = C["patch"], C["merge"]
    x = pictures.view(count, 3, height // CELL, merge, patch, width // CELL, merge, patch)
    x = x.permute(0, 2, 5, 3, 6, 1, 4, 7).reshape(count, -1, 3, 1, patch * patch)
    return x.expand(-1, -1, -1, C["tpatch"], -1).reshape(count, x.shape[1], -1)


def rotation(rows: int, columns: int, device: torch.device, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Give cosine and sine, [patch, head dim], of the row and column of each patch in the processor's order."""
    row = torch.arange(rows, device=device)[:, None].expand(rows, columns)
    column = torch.arange(columns, device=device)[None].expand(rows, columns)
    merge, dim = C["merge"], C["v_dim"] // C["v_heads"] // 2
    inverse = frequencies(dim, 10000.0, device)
    angles = []
    for place in (row, column):
        place = place.reshape(rows // merge, merge, columns // merge, merge).permute(0, 2, 1, 3).flatten().float()
        angles.append(place[:, None] * inverse)
    angle = torch.cat(angles * 2, -1)
    return angle.cos().to(dtype), angle.sin().to(dtype)
