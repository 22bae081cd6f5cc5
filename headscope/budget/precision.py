"""Precision: what one kept token weighs in a cache of a given dtype."""

from __future__ import annotations

import torch

from headscope.scores.score_file import is_count


def item_bytes(dtype: str | torch.dtype) -> int:
    """Bytes of one number of a dtype, given itself or by name, such as ``bfloat16``."""
    found = getattr(torch, dtype.removeprefix("torch."), None) if isinstance(dtype, str) else dtype
    if not isinstance(found, torch.dtype):
        raise ValueError(f"`dtype` must be the name of a torch dtype, such as bfloat16 or float32, got {dtype!r}")
    return found.itemsize


def token_bytes(dtype: str | torch.dtype, head_dim: int | None) -> int:
    """Bytes of the key and the value of one token in one KV head."""
    if not is_count(head_dim):
        raise ValueError(f"`head_dim` must be the model's, a whole number above 0, to count bytes; got {head_dim!r}")
    return 2 * int(head_dim) * item_bytes(dtype)  # type: ignore[arg-type]
