"""The attention inside a `compress` block: dense over a prompt, which it then compresses, ragged from then on."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from headscope.attach.step import Step
from headscope.cache import RaggedLayer

NAME = "headscope_ragged"  # with the dense attention's name behind it, its name in transformers
STEP = "headscope_step"  # the keyword by which a Step reaches it


def register(dense: str) -> str:
    """Make the attention known to transformers, on first use, and give its name.

    dense: the attention that runs over prompts. `eager` lives in each model's own module: sdpa stands in for it.
    A name without a mask function would silently lose the causal mask, so both interfaces get it.
    """
    from transformers import AttentionInterface, AttentionMaskInterface

    dense = "sdpa" if dense == "eager" else dense
    name = f"{NAME}_{dense}"
    AttentionInterface.register(name, partial(_attend, dense))
    AttentionMaskInterface.register(name, partial(_mask, dense))
    return name


def _attend(
    dense: str,
    module: nn.Module,
    query: Tensor,
    key: Any,
    value: Any,
    attention_mask: Tensor | None,
    headscope_step: Step | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attend: query [row, head, new, dim] -> [row, new, head, dim]. key: a RaggedLayer, or without a cache a tensor."""
    from transformers import AttentionInterface

    attention = AttentionInterface()[dense]
    if not isinstance(key, RaggedLayer):
        return attention(module, query, key, value, attention_mask, **kwargs)
    layer, scaling = key, kwargs.get("scaling") or query.shape[-1] ** -0.5
    if layer.compressed:
        return layer.attend(query, scaling, attention_mask), None
    if headscope_step is None:
        raise ValueError("the model's decoder stack must run as a whole inside `hs.compress`, not a layer by itself")
    keys, values = layer.dense()
    output = attention(module, query, keys, values, attention_mask, **kwargs)
    if headscope_step.end is None:
        layer.wait(keys, values, query, headscope_step.last)
    else:
        whole = query if layer.queries is None else torch.cat([layer.queries, query], dim=2)
        headscope_step.finish(layer, int(module.layer_idx), whole, keys, values, scaling)  # type: ignore[arg-type]
    return output


def _mask(dense: str, *args: Any, **kwargs: Any) -> Any:
    """Make the mask of a dense step, or of a ragged one: bool [row, new], False on padding; None: no padding.

    A ragged layer asks for keys from the queries' own offset on, which no dense one does.
    """
    from transformers import AttentionMaskInterface

    offset, new = kwargs.get("kv_offset", 0), kwargs["q_length"]
    if offset == 0 or offset != kwargs.get("q_offset"):
        return AttentionMaskInterface()[dense](*args, **kwargs)
    padding = kwargs.get("attention_mask")
    return None if padding is None else padding[:, offset : offset + new]
