"""Memory: what a model and its caches take at a context and a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headscope.accounting.precision import Precision
from headscope.accounting.shape import Shape
from headscope.accounting.step import kv_bytes


@dataclass(frozen=True)
class Memory:
    """Bytes. weights: the decoder's, all experts and the embedding table included. vision: tower and projector.

    kv: the whole cache. kept: the part of it that a compressed cache keeps; a sparse branch that only reads less keeps
    the whole one, and speculation keeps both. Activations, workspaces and fragmentation are not counted.
    """

    weights: float
    vision: float
    kv: float
    kept: float

    @property
    def total(self) -> float:
        """With the whole cache."""
        return self.weights + self.vision + self.kv

    @property
    def compressed(self) -> float:
        """With a compressed cache alone."""
        return self.weights + self.vision + self.kept


def memory(
    shape: Shape, precision: Precision, context: int, batch: int, keep_kv: float, vision_weights: int = 0
) -> Memory:
    """Count the memory at a context and a batch; sliding layers store their window."""
    projections = sum(layer.attention + layer.feed_forward + layer.expert * layer.experts for layer in shape.layers)
    cache = batch * kv_bytes(shape, precision, context)
    rest = precision.rest_bytes
    return Memory(
        weights=precision.weight_bytes * projections + rest * (shape.weights - projections),
        vision=rest * vision_weights,
        kv=cache,
        kept=keep_kv * cache,
    )


def count_vision(config: Any) -> int:
    """Count the weights outside the decoder, such as a vision tower and its projector: those of the model itself.

    The model is built without memory for its weights, with one decoder layer.
    """
    text = config.get_text_config()
    if text is config:
        return 0
    import torch
    from transformers import AutoModelForImageTextToText

    from headscope.families.decoder import language_model

    with torch.device("meta"):
        model: Any = AutoModelForImageTextToText.from_config(type(config).from_dict(_one_layer(config)))
    decoder = {id(weight) for weight in [*language_model(model).parameters(), *model.lm_head.parameters()]}
    return sum(weight.numel() for weight in model.parameters() if id(weight) not in decoder)


def _one_layer(config: Any) -> dict[str, Any]:
    values = config.to_dict()
    text = dict(values["text_config"])
    text["num_hidden_layers"] = 1
    if text.get("layer_types"):
        text["layer_types"] = text["layer_types"][:1]
    return {**values, "text_config": text}
