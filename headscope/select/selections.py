"""The selections: from a prompt's attention, or without a look at it, to the tokens that are kept."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import avg_pool1d

from headscope.select.observe import attention_from
from headscope.select.prompt import Prompt


def observation_window(prompt: Prompt, kept: Tensor, /, *, window: int = 32, pool: int = 5, sinks: int = 0) -> Tensor:
    """Keep the window, and of the tokens before it those that the window's queries attend to most.

    SnapKV (Li et al. 2024, arXiv 2404.14469) as in SparseMM's code: mean over the last `window` queries, mean over the
    group, average pool over `pool` neighbours (zeros beyond the ends), the highest per KV head. ByteCross: window 64,
    pool 7, sinks 4. sinks: the first tokens of the prompt, kept before others. Of equal tokens the first is kept.
    """
    scores = importances(prompt, window=window, pool=pool)
    return _highest(prompt, _with_sinks(prompt, scores, sinks), kept, window)


def text_guided(prompt: Prompt, kept: Tensor, /, *, window: int = 32) -> Tensor:
    """Keep the window and all text, and the visual tokens that the text after the last picture attends to most.

    StD: mean over that text, no pooling; summing over the group instead of averaging gives the same order. When there
    is more text than may be kept, the text with the most attention. A prompt without pictures, or with none behind
    them, is looked at from its window.
    """
    seen = prompt.visual if prompt.visual is not None else torch.zeros_like(prompt.there)
    places = torch.arange(prompt.tokens, device=prompt.key.device)
    after = prompt.there & (places > torch.where(seen, places, -1).amax(-1, keepdim=True))
    lone = ~seen.any(-1, keepdim=True) | ~after.any(-1, keepdim=True)
    counted = torch.where(lone, prompt.last(window), after)
    queries = min(prompt.tokens - int(counted.int().argmax(-1).min()), prompt.query.shape[2])
    scores = attention_from(prompt, counted[:, -queries:])
    return _highest(prompt, scores + 2.0 * ~seen[:, None], kept, window)


def sinks_and_recent(prompt: Prompt, kept: Tensor, /, *, window: int = 32, sinks: int = 4) -> Tensor:
    """Keep the first `sinks` tokens and the most recent ones: StreamingLLM (Xiao et al. 2024, arXiv 2309.17453)."""
    scores = prompt.ranks.float()[:, None].expand(-1, prompt.kv_heads, -1)
    return _highest(prompt, _with_sinks(prompt, scores, sinks), kept, window)


def random(prompt: Prompt, kept: Tensor, /, *, window: int = 32, seed: int = 0) -> Tensor:
    """Keep the window and any other tokens, by chance: the control. A row's choice depends on its own length only."""
    scores = torch.zeros(prompt.rows, prompt.kv_heads, prompt.tokens)
    for row, length in enumerate(prompt.there.sum(-1).tolist()):
        chance = torch.Generator().manual_seed(seed * 100_003 + prompt.layer)
        scores[row, :, prompt.tokens - length :] = torch.rand(prompt.kv_heads, length, generator=chance)
    return _highest(prompt, scores.to(prompt.key.device), kept, window)


def importances(prompt: Prompt, *, window: int = 32, pool: int = 5) -> Tensor:
    """Give what each token before the window matters to each KV head: float32 [row, kv, token], 0 in the window."""
    _check(window=window, pool=pool)
    if pool % 2 == 0:
        raise ValueError(f"`pool` must be odd, got {pool}")
    looking = min(window, prompt.query.shape[2])
    scores = attention_from(prompt, prompt.last(window)[:, -looking:])
    before = scores[..., : prompt.tokens - looking]
    scores[..., prompt.tokens - looking :] = 0
    if before.shape[-1]:
        scores[..., : before.shape[-1]] = avg_pool1d(before, pool, stride=1, padding=pool // 2)
    return scores


def _with_sinks(prompt: Prompt, scores: Tensor, sinks: int) -> Tensor:
    """Put the first tokens of each row before all but the window."""
    if isinstance(sinks, bool) or not isinstance(sinks, int) or sinks < 0:
        raise ValueError(f"`sinks` must be a whole number of tokens, at least 0, got {sinks!r}")
    first = prompt.there & (prompt.ranks < sinks)
    return scores.masked_fill(first[:, None], torch.finfo(torch.float32).max)


def _highest(prompt: Prompt, scores: Tensor, kept: Tensor, window: int) -> Tensor:
    """Choose the `kept` highest of each (row, kv), the window first, padding never; of equal ones the first."""
    _check(window=window)
    infinity = float("inf")
    scores = scores.masked_fill(prompt.last(window)[:, None], infinity)
    scores = scores.masked_fill(~prompt.there[:, None], -infinity)
    order = scores.sort(dim=-1, descending=True, stable=True).indices
    taken = torch.arange(prompt.tokens, device=order.device) < kept[..., None]
    return torch.zeros_like(order, dtype=torch.bool).scatter_(-1, order, taken)


def _check(**counts: int) -> None:
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"`{name}` must be a whole number above 0, got {value!r}")
