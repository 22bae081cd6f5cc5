"""Flash: FlashAttention as another backend of decode attention, where it is installed and asked for.

Each segment is a sequence of its own with one KV head. FlashAttention-3 takes lengths beside the offsets of its ragged
call; for FlashAttention-2 the slack behind each segment is a sequence without queries. Neither is ever needed;
`HEADSCOPE_ATTENTION=flash` asks for them.
"""

from __future__ import annotations

import importlib
import os
from functools import cache
from typing import Any

import torch

ASKED = os.environ.get("HEADSCOPE_ATTENTION", "triton") == "flash"
FA3 = ("flash_attn_interface", "fa3_fwd_interface")  # modules that bring it: the project's own build, and a wheel
FA2 = ("flash_attn",)
HALF = (torch.bfloat16, torch.float16)


@cache
def installed() -> tuple[Any, Any]:
    """Give the modules of FlashAttention-3 and FlashAttention-2, None for one that is not installed."""
    return _first(FA3), _first(FA2)


def _first(names: tuple[str, ...]) -> Any:
    for name in names:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None


def serves(query: torch.Tensor) -> bool:
    """Tell whether FlashAttention is asked for, installed, and takes this query: on a GPU, in half precision."""
    return ASKED and query.is_cuda and query.dtype in HALF and any(installed())


def flash_decode(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    starts: torch.Tensor,
    lengths: torch.Tensor,
    scaling: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attend as `headscope.kernels.ragged_decode` does, to segments that lie in the order of (row, kv).

    No length is read on the host: the buffer's size stands for the longest, so a CUDA graph may hold the call.
    """
    newer, older = installed()
    segments, (rows, heads, dim) = lengths.numel(), query.shape
    grouped = query.reshape(segments, -1, dim)
    counted = torch.arange(segments + 1, device=query.device, dtype=torch.int32)
    settings = {"max_seqlen_q": 1, "max_seqlen_k": key.shape[0], "softmax_scale": scaling, "return_attn_probs": True}
    held = grouped, key[:, None], value[:, None]
    if newer is not None:
        offsets = torch.cat([starts.flatten(), starts.new_full((1,), key.shape[0])]).to(torch.int32)
        used = {"seqused_k": lengths.flatten(), "num_splits": 0}
        output, lse, *_ = newer.flash_attn_varlen_func(
            *held, cu_seqlens_q=counted, cu_seqlens_k=offsets, **used, **settings
        )
    else:
        ends = starts + lengths
        bounds = torch.cat([torch.stack([starts, ends], dim=-1).flatten(), starts.new_full((1,), key.shape[0])])
        queries = counted.repeat_interleave(2, output_size=2 * segments + 2)[1:]
        output, lse, *_ = older.flash_attn_varlen_func(
            *held, cu_seqlens_q=queries, cu_seqlens_k=bounds.to(torch.int32), **settings
        )
    return output.reshape(rows, heads, dim), lse.t().reshape(rows, heads)
