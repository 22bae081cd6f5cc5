"""The oracle: a dense forward pass over prompt and answer in which tokens behind the prompt see only what was kept."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from headscope.cache import RaggedLayer
from headscope.families import language_model

NAME = "test_masked"


def kept_tokens(layer: RaggedLayer) -> Tensor:
    """Give which prompt tokens a layer holds: bool [row, kv, prompt]."""
    assert layer.tokens is not None
    counts = layer.tokens.kept.flatten().tolist()
    chosen = torch.zeros(len(counts), layer.tokens.prompt, dtype=torch.bool)
    for segment, places in enumerate(layer.tokens.positions.long().split(counts)):
        chosen[segment, places] = True
    return chosen.view(*layer.tokens.kept.shape, -1)


@torch.no_grad()
def masked_logits(model: Any, inputs: dict[str, Any], answer: Tensor, kept: list[Tensor]) -> Tensor:
    """Give the logits that predict the answer's tokens and the next: [row, answer + 1, vocabulary].

    answer: [row, answer]. kept: for each layer bool [row, kv, prompt].
    """
    prompt = inputs["input_ids"].shape[1]

    def attend(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, **kwargs: Any) -> tuple[Tensor, None]:
        group = query.shape[1] // key.shape[1]
        places = torch.arange(query.shape[2])
        seen = (places <= places[:, None])[None, None].expand(query.shape[0], query.shape[1], -1, -1).clone()
        if (window := kwargs.get("sliding_window")) is not None:
            seen &= places > places[:, None] - window
        chosen = kept[module.layer_idx].repeat_interleave(group, 1)
        seen[:, :, prompt:, :prompt] &= chosen[:, :, None]
        if mask is not None:
            seen &= mask
        logits = query @ key.repeat_interleave(group, 1).transpose(2, 3) * kwargs["scaling"]
        weights = logits.masked_fill(~seen, torch.finfo(logits.dtype).min).softmax(-1)
        return (weights @ value.repeat_interleave(group, 1)).transpose(1, 2), None

    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    stack: Any = language_model(model)
    before = stack.config._attn_implementation
    stack.set_attn_implementation(NAME)
    try:
        return model(**_longer(inputs, answer), use_cache=False).logits[:, prompt - 1 :]
    finally:
        stack.set_attn_implementation(before)


def _longer(inputs: dict[str, Any], answer: Tensor) -> dict[str, Any]:
    """Put the answer behind the prompt."""
    longer = {"input_ids": torch.cat([inputs["input_ids"], answer], dim=1)}
    for name in ("attention_mask", "mm_token_type_ids"):
        if name in inputs:
            more = torch.full_like(answer, int(name == "attention_mask"))
            longer[name] = torch.cat([inputs[name], more], dim=1)
    return inputs | longer
