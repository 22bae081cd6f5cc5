"""Layouts: how a config's numbers become the weights of its decoder; one line for each kind of decoder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headscope.accounting.shape import Layer, Shape

FULL, SLIDING = "full_attention", "sliding_attention"


@dataclass(frozen=True)
class Layout:
    """What a kind of decoder has beside the seven projections of a layer.

    norms: norms of the layer's width. head_norms: of queries and keys: "head" one of the head's length each, "all" one
    of all heads' length each, "" none. qkv_bias, o_bias, mlp_bias: whether query, key and value, output, or the
    feed-forward have biases: the name of the config's switch for it, or True.
    """

    norms: int = 2
    head_norms: str = ""
    qkv_bias: str | bool = False
    o_bias: str | bool = False
    mlp_bias: str | bool = False


PLAIN = Layout()
LLAMA = Layout(qkv_bias="attention_bias", o_bias="attention_bias", mlp_bias="mlp_bias")
QWEN2 = Layout(qkv_bias=True)
QWEN3 = Layout(head_norms="head", qkv_bias="attention_bias", o_bias="attention_bias")
GEMMA = Layout(qkv_bias="attention_bias", o_bias="attention_bias")
LAYOUTS = {
    "llama": LLAMA,
    "smollm3": LLAMA,
    "granite": LLAMA,
    "mistral": PLAIN,
    "ministral": PLAIN,
    "ministral3": PLAIN,
    "mixtral": PLAIN,
    "phi3": PLAIN,
    "qwen2": QWEN2,
    "qwen2_vl_text": QWEN2,
    "qwen2_5_vl_text": QWEN2,
    "qwen2_moe": Layout(qkv_bias="qkv_bias"),
    "qwen3": QWEN3,
    "qwen3_moe": QWEN3,
    "qwen3_vl_text": QWEN3,
    "qwen3_vl_moe_text": QWEN3,
    "gemma": GEMMA,
    "gemma2": Layout(norms=4, qkv_bias="attention_bias", o_bias="attention_bias"),
    "gemma3_text": Layout(norms=4, head_norms="head", qkv_bias="attention_bias", o_bias="attention_bias"),
    "olmo2": Layout(head_norms="all", qkv_bias="attention_bias", o_bias="attention_bias"),
    "olmo3": Layout(head_norms="all", qkv_bias="attention_bias", o_bias="attention_bias"),
    "exaone4": Layout(head_norms="head"),
}


def read_shape(config: Any) -> Shape:
    """Count the weights of a config's decoder. A vision tower is no part of it: it runs in the prefill only.

    Raises ValueError for a kind of decoder, or of layer, whose weights are not known here: no guess is made.
    """
    text = config.get_text_config()
    if text.model_type not in LAYOUTS:
        raise ValueError(
            f"`model_type` of the decoder must be one of {', '.join(sorted(LAYOUTS))}, got {text.model_type!r}; "
            "headscope/accounting/layout.py takes others"
        )
    layout, hidden = LAYOUTS[text.model_type], text.hidden_size
    attention, kv = _attention(text)
    small = layout.norms * hidden + _head_norms(layout, text) + _attention_biases(layout, text)
    layers = tuple(
        Layer(attention=attention, kv=kv, window=window, **feed_forward(small))
        for window, feed_forward in zip(_windows(text), _feed_forwards(layout, text), strict=True)
    )
    return Shape(layers, hidden, text.vocab_size, tied=_tied(config, text), final=hidden)


def _attention(text: Any) -> tuple[int, int]:
    """Count the weights of the four projections, 2 d (heads + KV heads) head dim, and a token's KV numbers."""
    heads, dim = text.num_attention_heads, _head_dim(text)
    kv_heads = getattr(text, "num_key_value_heads", None) or heads
    return 2 * text.hidden_size * (heads + kv_heads) * dim, 2 * kv_heads * dim


def _head_dim(text: Any) -> int:
    return getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads


def _head_norms(layout: Layout, text: Any) -> int:
    heads, dim = text.num_attention_heads, _head_dim(text)
    kv_heads = getattr(text, "num_key_value_heads", None) or heads
    return {"": 0, "head": 2 * dim, "all": (heads + kv_heads) * dim}[layout.head_norms]


def _attention_biases(layout: Layout, text: Any) -> int:
    heads, dim = text.num_attention_heads, _head_dim(text)
    kv_heads = getattr(text, "num_key_value_heads", None) or heads
    qkv = (heads + 2 * kv_heads) * dim if _switch(layout.qkv_bias, text) else 0
    return qkv + (text.hidden_size if _switch(layout.o_bias, text) else 0)


def _switch(bias: str | bool, text: Any) -> bool:
    return bool(getattr(text, bias, False)) if isinstance(bias, str) else bias


def _feed_forwards(layout: Layout, text: Any) -> list[Callable[[int], dict[str, int]]]:
    """Give, layer by layer, what counts its feed-forward on top of a number of other small weights."""
    hidden, width = text.hidden_size, text.intermediate_size
    bias = 2 * width + hidden if _switch(layout.mlp_bias, text) else 0
    experts = getattr(text, "num_local_experts", None) or getattr(text, "num_experts", None) or 0

    def dense(small: int) -> dict[str, int]:
        return {"feed_forward": 3 * hidden * width, "other": small + bias}

    def mixed(small: int) -> dict[str, int]:
        shared = getattr(text, "shared_expert_intermediate_size", None) or 0
        return {
            "feed_forward": 3 * hidden * shared,
            "expert": 3 * hidden * (getattr(text, "moe_intermediate_size", None) or width),
            "experts": experts,
            "active": text.num_experts_per_tok,
            "other": small + experts * hidden + (hidden if shared else 0),  # the router, the shared expert's gate
        }

    return [mixed if experts and _is_mixed(text, layer) else dense for layer in range(text.num_hidden_layers)]


def _is_mixed(text: Any, layer: int) -> bool:
    """Whether a layer of a mixture of experts has experts."""
    step = getattr(text, "decoder_sparse_step", None) or 1
    return layer not in (getattr(text, "mlp_only_layers", None) or []) and (layer + 1) % step == 0


def _windows(text: Any) -> list[int | None]:
    """Give the tokens that each layer's attention sees; None: all."""
    window = getattr(text, "sliding_window", None) or None
    kinds = getattr(text, "layer_types", None)
    if kinds is None:
        kinds = [SLIDING if window else FULL] * text.num_hidden_layers
    if unknown := set(kinds) - {FULL, SLIDING}:
        raise ValueError(
            f"`layer_types` must be {FULL} or {SLIDING} for the account of a step, got {', '.join(sorted(unknown))}"
        )
    return [window if kind == SLIDING else None for kind in kinds]


def _tied(config: Any, text: Any) -> bool:
    """Whether head and embedding table are one: what the whole model says counts before its decoder's word."""
    for place in (config, text):
        if (tied := getattr(place, "tie_word_embeddings", None)) is not None:
            return bool(tied)
    return False
