"""Attention over segments: new queries see what is held and, causally, each other."""

from __future__ import annotations

import torch
from torch import Tensor

from headscope.cache.segments import Segments
from headscope.kernels import ragged_decode

FOLDED = 16  # queries of one KV head that one kernel call takes, group included
CHUNK_BYTES = 32 * 2**20  # of fp32 logits among the new tokens at a time


def attend_held(segments: Segments, query: Tensor, scaling: float) -> tuple[Tensor, Tensor]:
    """Attend to all that is held: query [row, head, query, dim] -> output alike, natural-log LSE [row, head, query].

    Queries of one KV head share its segment, so several tokens fold into the group.
    """
    kvs = segments.lengths.shape[1]
    grouped = query.unflatten(1, (kvs, -1))
    step = max(1, FOLDED // grouped.shape[2])
    outputs, lses = [], []
    for part in grouped.split(step, dim=3):
        shape = part.shape[:-1]
        folded = part.reshape(part.shape[0], -1, part.shape[-1])
        output, lse = ragged_decode(folded, segments.key, segments.value, segments.starts, segments.lengths, scaling)
        outputs.append(output.view(*shape, -1).flatten(1, 2))
        lses.append(lse.view(shape).flatten(1, 2))
    return torch.cat(outputs, dim=2), torch.cat(lses, dim=2)


def attend_new(
    query: Tensor, key: Tensor, value: Tensor, scaling: float, valid: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Attend causally among new tokens, in fp32: [row, head, new, dim] -> output alike, LSE [row, head, new].

    key, value: [row, kv, new, dim]. valid: bool [row, new], False on padding; None: no padding.
    """
    rows, kvs, new, _ = key.shape
    grouped = query.unflatten(1, (kvs, -1))
    places = torch.arange(new, device=query.device)
    keys, values = key.float()[:, :, None].transpose(-1, -2), value.float()[:, :, None]
    outputs, lses = [], []
    for at in places.split(max(1, CHUNK_BYTES // (4 * rows * query.shape[1] * new))):
        hidden = (places > at[:, None])[None]
        if valid is not None:
            hidden = hidden | ~valid[:, None]
        logits = grouped[:, :, :, at].float() @ keys * scaling
        logits = logits.masked_fill(hidden[:, None, None], float("-inf"))
        lse = logits.logsumexp(-1)
        weights = (logits - lse[..., None]).exp().nan_to_num(0.0)
        outputs.append((weights @ values).flatten(1, 2))
        lses.append(lse.flatten(1, 2))
    return torch.cat(outputs, dim=2), torch.cat(lses, dim=2)


def merge(held: tuple[Tensor, Tensor], new: tuple[Tensor, Tensor]) -> Tensor:
    """Join two attentions over different keys by their LSE: [row, head, query, dim] in the first one's dtype."""
    total = torch.logaddexp(held[1], new[1])
    parts = [output.float() * (lse - total).exp().nan_to_num(0.0)[..., None] for output, lse in (held, new)]
    return (parts[0] + parts[1]).to(held[0].dtype)
