"""Observation: the attention that some of a prompt's queries pay to its keys, formed in bounded memory."""

from __future__ import annotations

import torch
from torch import Tensor

from headscope.select.prompt import Prompt

CHUNK_BYTES = 32 * 2**20  # of fp32 logits and keys at a time: with their temporaries, about 100 MiB at the peak


def attention_from(prompt: Prompt, counted: Tensor) -> Tensor:
    """Give the mean attention of the counted queries to each key: float32 [row, kv, token], group mean included.

    counted: bool [row, query], which of the last queries count; each row has at least one. Softmax in fp32 over all
    keys that a query sees: the prompt's own up to itself, no padding.
    """
    queries = counted.shape[1]
    if queries > prompt.query.shape[2]:
        raise ValueError(f"`query` must hold the last {queries} queries, got {prompt.query.shape[2]}")
    output = torch.empty(prompt.rows, prompt.kv_heads, prompt.tokens, dtype=torch.float32, device=prompt.key.device)
    group, dim, line = prompt.query.shape[1] // prompt.kv_heads, prompt.key.shape[-1], 4 * prompt.tokens
    block = min(queries, max(1, (CHUNK_BYTES // line - dim) // group))  # queries at a time
    step = max(1, CHUNK_BYTES // (line * (dim + group * block)))  # KV heads at a time
    for row in range(prompt.rows):
        for first in range(0, prompt.kv_heads, step):
            heads = slice(first, first + step)
            output[row, heads] = _mean(prompt, row, heads, counted[row], block)
    return output


def _mean(prompt: Prompt, row: int, heads: slice, counted: Tensor, block: int) -> Tensor:
    """Average over the counted queries of one row and over the group: float32 [kv, token]."""
    queries = len(counted)
    query = prompt.query[row, :, -queries:].unflatten(0, (prompt.kv_heads, -1))[heads].float()
    keys = prompt.key[row, heads].float().transpose(1, 2)
    total = torch.zeros(keys.shape[0], prompt.tokens, dtype=torch.float32, device=keys.device)
    for first in range(0, queries, block):
        at = slice(first, first + block)
        logits = (query[:, :, at].flatten(1, 2) @ keys).unflatten(1, (query.shape[1], -1)).mul_(prompt.scaling)
        logits.masked_fill_(_hidden(prompt, row, queries)[at], float("-inf"))
        total += logits.softmax(-1).masked_fill_(~counted[at, None], 0).mean(1).sum(1)
    return total / counted.sum()


def _hidden(prompt: Prompt, row: int, queries: int) -> Tensor:
    """Say which keys each of the last queries does not see: bool [query, token]."""
    places = torch.arange(prompt.tokens, device=prompt.key.device)
    at = places[-queries:, None]
    hidden = places > at
    if prompt.span is not None:
        hidden |= places <= at - prompt.span
    return hidden if prompt.valid is None else hidden | ~prompt.valid[row]
