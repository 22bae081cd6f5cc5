"""Attention rows: what each head looks at when it predicts a token, formed only for the tokens that matter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

ROWS = "headscope_rows"  # the attention's name in transformers, registered on first use
CHUNK_BYTES = 32 * 2**20  # of fp32 rows formed at a time: with their temporaries, about 100 MiB at the peak

# Called as visit(layer, first, attention): rows `first` and on, float32 [head, row, key], softmax over all keys.
Visit = Callable[[int, int, Tensor], None]


@torch.inference_mode()
def watch_rows(language_model: Any, arguments: dict[str, Any], rows: Tensor, visit: Visit) -> None:
    """Run one forward pass of the decoder stack, handing over the attention of chosen query positions layer by layer.

    arguments: the stack's own, a batch of one without padding. rows: int64 [row], query positions. The rows are formed
    in fp32 beside the attention itself, a chunk at a time, and feed nothing back.
    """
    batch = arguments["inputs_embeds"].shape[0]
    if batch != 1:
        raise ValueError(f"`inputs_embeds` must be a batch of one sequence, got {batch}; probe them one by one")

    def watch(module: Any, query: Tensor, key: Tensor, scaling: float, window: int | None) -> None:
        for first, attention in form_rows(query[0], key[0], rows.to(query.device), scaling, window):
            visit(module.layer_idx, first, attention)

    with _attention_by(language_model, ROWS):
        language_model(**arguments, use_cache=False, headscope_watch=watch)


def form_rows(
    query: Tensor, key: Tensor, rows: Tensor, scaling: float, window: int | None = None
) -> Iterator[tuple[int, Tensor]]:
    """Yield (first row, softmax rows float32 [head, row, key]) of causal attention in chunks of bounded memory.

    query [head, token, dim], key [kv, token, dim], rows int64 [row]. window: keys a sliding-window layer sees, itself
    included.
    """
    heads, tokens = query.shape[0], key.shape[1]
    step = max(1, CHUNK_BYTES // (4 * heads * tokens))
    transposed = key.float().transpose(1, 2)
    places = torch.arange(tokens, device=key.device)
    for first in range(0, len(rows), step):
        at = rows[first : first + step]
        grouped = query[:, at].float().reshape(key.shape[0], -1, query.shape[-1])
        logits = (grouped @ transposed).reshape(heads, len(at), tokens).mul_(scaling)
        hidden = places > at[:, None]
        if window is not None:
            hidden |= places <= at[:, None] - window
        yield first, logits.masked_fill_(hidden, float("-inf")).softmax(dim=-1)


@contextmanager
def _attention_by(language_model: Any, name: str) -> Iterator[None]:
    """Let the decoder stack attend by a registered function inside the block; the vision tower is left alone."""
    _register()
    before = language_model.config._attn_implementation
    language_model.set_attn_implementation(name)
    try:
        yield
    finally:
        language_model.set_attn_implementation(before)


def _register() -> None:
    """Make the watched attention known, with its mask function: a name without one silently loses the causal mask."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(ROWS, _watched_attention)
    AttentionMaskInterface.register(ROWS, sdpa_mask)


def _watched_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    headscope_watch: Callable[..., None] | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attend as sdpa does and show query and key ([batch, head or kv, token, dim]) to the watcher that came along."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if headscope_watch is not None:
        scaling = kwargs.get("scaling") or query.shape[-1] ** -0.5
        headscope_watch(module, query, key, scaling, kwargs.get("sliding_window"))
    return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
