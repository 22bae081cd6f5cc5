"""Observation: the attention that some of a prompt's queries pay to its keys, formed in bounded memory."""

from __future__ import annotations

import torch
from torch import Tensor

from headscope.select.prompt import Prompt

CHUNK_BYTES = 32 * 2**20  # of fp32 logits, and of fp32 keys where those are needed, at a time


def attention_from(prompt: Prompt, counted: Tensor) -> Tensor:
    """Give the mean attention of the counted queries to each key: float32 [row, kv, token], group mean included.

    counted: bool [row, query], which of the last queries count; each row has at least one. Softmax in fp32 over all
    keys that a query sees: the prompt's own up to itself, no padding.
    """
    queries = counted.shape[1]
    if queries > prompt.query.shape[2]:
        raise ValueError(f"`query` must hold the last {queries} queries, got {prompt.query.shape[2]}")
    output = torch.empty(prompt.rows, prompt.kv_heads, prompt.tokens, dtype=torch.float32, device=prompt.key.device)
    group, line = prompt.query.shape[1] // prompt.kv_heads, 4 * prompt.tokens
    copied = 0 if _sums_in_fp32(prompt.key) else prompt.key.shape[-1]  # lines of a head's keys
    block = min(queries, max(1, (CHUNK_BYTES // line - copied) // group))  # queries at a time
    step = max(1, CHUNK_BYTES // (line * (copied + group * block)))  # KV heads at a time
    for row in range(prompt.rows):
        for first in range(0, prompt.kv_heads, step):
            heads = slice(first, first + step)
            output[row, heads] = _mean(prompt, row, heads, counted[row], block)
    return output


def _mean(prompt: Prompt, row: int, heads: slice, counted: Tensor, block: int) -> Tensor:
    """Average over the counted queries of one row and over the group: float32 [kv, token]."""
    queries = len(counted)
    query = prompt.query[row, :, -queries:].unflatten(0, (prompt.kv_heads, -1))[heads]
    keys, group = prompt.key[row, heads], query.shape[1]
    if not _sums_in_fp32(keys):
        query, keys = query.float(), keys.float()
    share = counted / (counted.sum() * group)
    total = torch.zeros(keys.shape[:2], dtype=torch.float32, device=keys.device)
    for first in range(0, queries, block):
        at = slice(first, first + block)
        logits = _logits(query[:, :, at].flatten(1, 2), keys).mul_(prompt.scaling)
        _hide(logits.unflatten(1, (group, -1)), prompt, row, queries, at)
        total += share[at].repeat(group) @ logits.softmax(-1)
    return total


def _sums_in_fp32(keys: Tensor) -> bool:
    """Tell whether products of these keys are to be had in fp32 without a copy of them."""
    return keys.is_cuda and keys.dtype in (torch.bfloat16, torch.float16)


def _logits(query: Tensor, keys: Tensor) -> Tensor:
    """Multiply queries [kv, query, dim] and keys [kv, token, dim]: float32 [kv, query, token]."""
    if _sums_in_fp32(keys):
        return torch.bmm(query, keys.transpose(1, 2), out_dtype=torch.float32)
    return query @ keys.transpose(1, 2)


def _hide(logits: Tensor, prompt: Prompt, row: int, queries: int, at: slice) -> None:
    """Put out what some of the last queries do not see: float32 [kv, group, query, token], in place."""
    plain = prompt.valid is None and prompt.span is None
    tokens = queries if plain else prompt.tokens  # without padding and window only the last keys can be hidden
    places = torch.arange(prompt.tokens - tokens, prompt.tokens, device=logits.device)
    own = places[-queries:, None][at]
    hidden = places > own
    if prompt.span is not None:
        hidden |= places <= own - prompt.span
    if prompt.valid is not None:  # padding's own queries never count, and see something, since 0 times NaN would be NaN
        hidden = (hidden | ~prompt.valid[row]) & prompt.valid[row][own]
    logits[..., -tokens:].masked_fill_(hidden, float("-inf"))
