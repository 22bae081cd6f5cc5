"""Refusals: what speculation cannot do, said before any forward pass of the decoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

ONE = ("num_beams", "num_beam_groups", "num_return_sequences")
NONE = {  # settings of other ways of decoding
    "penalty_alpha": "contrastive search",
    "dola_layers": "DoLa",
    "force_words_ids": "constrained beam search",
    "constraints": "constrained beam search",
    "prompt_lookup_num_tokens": "transformers' assisted decoding",
    "assistant_early_exit": "transformers' assisted decoding",
}
OUTPUTS = ("output_scores", "output_logits", "output_attentions", "output_hidden_states")
OTHERS = ("assistant_model", "custom_generate", "synced_gpus", "negative_prompt_ids")  # arguments of `generate` itself


def check_generation(model: Any, input_ids: Tensor, config: Any, criteria: Any) -> None:
    """Refuse settings of `generate` that speculation cannot follow."""
    if getattr(model.config, "is_encoder_decoder", False):
        raise ValueError("`model` must be a decoder, got an encoder with a decoder")
    check_settings(vars(config))
    if getattr(config, "return_dict_in_generate", False):
        for name in OUTPUTS:
            if getattr(config, name, False):
                raise ValueError(f"`{name}` cannot be given while speculating; call generate without `custom_generate`")
    if criteria.max_length is not None and criteria.max_length <= input_ids.shape[1]:
        raise ValueError(
            f"`max_new_tokens` must be at least 1: the prompt has {input_ids.shape[1]} tokens, and `max_length` is "
            f"{criteria.max_length}"
        )


def check_settings(settings: Mapping[str, Any]) -> None:
    """Refuse settings by name, wherever they were given."""
    for name in ONE:
        if (value := settings.get(name)) not in (None, 1):
            raise ValueError(f"`{name}` must be 1 while speculating, got {value}")
    for name, what in NONE.items():
        if (value := settings.get(name)) is not None:
            raise ValueError(f"`{name}` must be left out while speculating, got {value!r}: it asks for {what}")
    if (kind := settings.get("cache_implementation")) not in (None, "dynamic", "dynamic_full"):
        raise ValueError(f"`cache_implementation` must be left out while speculating, got {kind!r}")


def check_arguments(arguments: Mapping[str, Any]) -> None:
    """Refuse arguments of `generate` that `hs.generate` has no use for."""
    for name in OTHERS:
        if arguments.get(name) is not None:
            raise ValueError(f"`{name}` must be left out of `hs.generate`, which decodes by a draft of its own")
    tokens = arguments.get("max_new_tokens")
    if tokens is not None and tokens < 1:
        raise ValueError(f"`max_new_tokens` must be at least 1, got {tokens}")
    config = arguments.get("generation_config")
    check_settings(({} if config is None else vars(config)) | dict(arguments))
