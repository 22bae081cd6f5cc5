"""FlashAttention as a backend: what it is told, against attention by the definition of its ragged call."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from headscope.kernels import flash
from headscope.kernels.decode import ragged_decode, reference
from tests.kernels.ragged import normal


def varlen(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    softmax_scale: float,
    return_attn_probs: bool,
    seqused_k: torch.Tensor | None = None,
    num_splits: int = 0,
) -> tuple[torch.Tensor, torch.Tensor, None]:
    """The ragged call as FlashAttention documents it, sequence by sequence."""
    assert cu_seqlens_q.dtype == cu_seqlens_k.dtype == torch.int32 and len(cu_seqlens_q) == len(cu_seqlens_k)
    output, lse = torch.zeros_like(q), torch.full(q.shape[:2], -torch.inf).t().contiguous()
    for at in range(len(cu_seqlens_q) - 1):
        queries = slice(int(cu_seqlens_q[at]), int(cu_seqlens_q[at + 1]))
        first, last = int(cu_seqlens_k[at]), int(cu_seqlens_k[at + 1])
        assert last >= first and queries.stop - queries.start <= max_seqlen_q and last - first <= max_seqlen_k
        last = last if seqused_k is None else first + int(seqused_k[at])
        scores = torch.einsum("qhd,kd->hqk", q[queries].float(), k[first:last, 0].float()) * softmax_scale
        if scores.numel():
            output[queries] = torch.einsum("hqk,kd->qhd", scores.softmax(-1), v[first:last, 0].float()).to(q.dtype)
            lse[:, queries] = scores.logsumexp(-1)
    return output, lse, None


@pytest.mark.parametrize("version", [3, 2])
def test_segments_with_slack_are_told_as_they_lie(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = SimpleNamespace(flash_attn_varlen_func=varlen)
    monkeypatch.setattr(flash, "installed", lambda: (module, None) if version == 3 else (None, module))
    lengths = torch.tensor([[5, 1], [17, 9]], dtype=torch.int32)
    ends = (lengths.flatten().long() + 4).cumsum(0)
    starts = (ends - lengths.flatten() - 4).view(2, 2)
    key, value = (normal(int(ends[-1]), 32, dtype=torch.float32, seed=seed) for seed in (1, 2))
    query = normal(2, 6, 32, dtype=torch.float32, seed=3)
    found = flash.flash_decode(query, key, value, starts, lengths, 0.2)
    for ours, theirs in zip(found, reference(query, key, value, starts, lengths, 0.2), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_it_is_used_only_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[int] = []
    monkeypatch.setattr(flash, "flash_decode", lambda *given: called.append(len(given)) or given[:2])
    lengths, starts = torch.tensor([[3]], dtype=torch.int32), torch.tensor([[0]])
    key = normal(3, 16, dtype=torch.float32)
    given = normal(1, 2, 16, dtype=torch.float32), key, key, starts, lengths, 0.25
    ragged_decode(*given)
    assert not called
    monkeypatch.setattr(flash, "serves", lambda query: True)
    ragged_decode(*given)
    assert called == [6]
