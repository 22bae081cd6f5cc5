"""The decoder: where a model's text layers and their attention modules are, and how many heads they have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn


@dataclass(frozen=True)
class Geometry:
    """Sizes of the decoder.

    layers; heads: query heads of a layer; kv_heads: KV heads of a layer; head_dim: length of one head.
    """

    layers: int
    heads: int
    kv_heads: int
    head_dim: int


def geometry(config: Any) -> Geometry:
    """Read the decoder's sizes from a config's text part; the vision tower does not count.

    A config without KV heads has as many as query heads; one without `head_dim` divides the width evenly.
    """
    text = config.get_text_config()
    heads = text.num_attention_heads
    return Geometry(
        layers=text.num_hidden_layers,
        heads=heads,
        kv_heads=getattr(text, "num_key_value_heads", None) or heads,
        head_dim=getattr(text, "head_dim", None) or text.hidden_size // heads,
    )


def language_model(model: nn.Module) -> nn.Module:
    """Give the decoder stack, the module whose forward takes `inputs_embeds`.

    Looks through `torch.compile` and PEFT wrappers. Raises ValueError when the model has no decoder stack where all
    known families (transformers 5.17 to 5.24) and plain text models have theirs.
    """
    inner: Any = getattr(_unwrapped(model), "model", None)
    stack = getattr(inner, "language_model", inner)
    if getattr(stack, "layers", None) is None:
        raise ValueError(
            f"`model` must have its decoder layers in `model.language_model.layers`, {type(model).__name__} has none; "
            "load it with AutoModelForImageTextToText"
        )
    return stack


def attention_modules(model: nn.Module) -> list[nn.Module]:
    """Give the attention module of each text layer, in order.

    Raises ValueError unless there is one for each layer of the config.
    """
    stack: Any = language_model(model)
    modules = [layer.self_attn for layer in stack.layers if hasattr(layer, "self_attn")]
    if len(modules) != (layers := geometry(stack.config).layers):
        raise ValueError(
            f"`model` must have one attention module for each of its {layers} layers, found {len(modules)}"
        )
    return modules


def _unwrapped(model: nn.Module) -> nn.Module:
    inner: Any = getattr(model, "_orig_mod", model)
    return inner.get_base_model() if hasattr(inner, "get_base_model") else inner
