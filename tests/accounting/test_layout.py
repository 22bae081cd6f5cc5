"""The weights counted from a config are those of the model that transformers builds from it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from headscope.accounting.config import load_config, names
from headscope.accounting.layout import LAYOUTS, read_shape
from headscope.accounting.memory import count_vision

TINY: dict[str, Any] = {
    "vocab_size": 320,
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
}
MIXED = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
EXTRA: dict[str, dict[str, Any]] = {
    "mixtral": {"num_local_experts": 8, "num_experts_per_tok": 2},
    "qwen2_moe": MIXED | {"shared_expert_intermediate_size": 72, "decoder_sparse_step": 2, "mlp_only_layers": [3]},
    "qwen3_moe": MIXED | {"decoder_sparse_step": 1, "mlp_only_layers": [0]},
    "llama": {"attention_bias": True, "mlp_bias": True},
    "phi3": {"head_dim": 24},
}
WHOLE = {  # parameters of the released checkpoints, as their repositories state them
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.2-3b": 3_212_749_824,
    "llava-1.5-7b": 7_063_427_072,
    "mistral-7b": 7_248_023_552,
    "mixtral-8x7b": 46_702_792_704,
    "qwen2-vl-7b": 8_291_375_616,
    "qwen2.5-vl-7b": 8_292_166_656,
    "qwen3-8b": 8_190_735_360,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-vl-8b": 8_767_123_696,
    "vicuna-7b": 6_738_415_616,
}
TEXT = [kind for kind in LAYOUTS if not kind.endswith(("vl_text", "vl_moe_text"))]


def built(kind: str, **changes: Any) -> tuple[Any, Any]:
    """A tiny config of a kind, and its model without memory for weights."""
    config = CONFIG_MAPPING[kind].from_dict({**TINY, **EXTRA.get(kind, {}), **changes})
    with torch.device("meta"):
        return config, AutoModelForCausalLM.from_config(config)


@pytest.mark.parametrize("kind", TEXT)
@pytest.mark.parametrize("tied", [False, True])
def test_every_weight_of_a_decoder_is_counted_once(kind: str, tied: bool) -> None:
    config, model = built(kind, tie_word_embeddings=tied)
    assert read_shape(config).weights == sum(weight.numel() for weight in model.parameters())


@pytest.mark.parametrize("kind", TEXT)
def test_projections_are_the_matrices_of_a_layer(kind: str) -> None:
    """Attention and feed-forward weights, layer by layer, and the router apart from them."""
    config, model = built(kind)
    for layer, module in zip(read_shape(config).layers, model.model.layers, strict=True):
        attention = [w for n, w in module.self_attn.named_parameters() if n.endswith("proj.weight")]
        assert layer.attention == sum(weight.numel() for weight in attention)
        experts = [w for n, w in module.named_parameters() if ".experts." in n]
        assert layer.expert * layer.experts == sum(weight.numel() for weight in experts)
        plain = [w for n, w in module.mlp.named_parameters() if n.endswith("proj.weight") and "experts." not in n]
        assert layer.feed_forward == sum(weight.numel() for weight in plain)


@pytest.mark.parametrize("kind", ["gemma2", "gemma3_text", "ministral", "mistral", "olmo3", "qwen2", "qwen2_moe"])
def test_windows_are_those_of_the_caches_that_transformers_makes(kind: str) -> None:
    from transformers import DynamicCache

    asked = {"sliding_window": 64, "use_sliding_window": True, "max_window_layers": 2}
    config = CONFIG_MAPPING[kind].from_dict({**TINY, **EXTRA.get(kind, {}), **asked})
    expected = [getattr(layer, "sliding_window", None) for layer in DynamicCache(config=config).layers]
    found = [layer.window for layer in read_shape(config).layers]
    assert found == expected and 64 in [window and round(window / 32) * 32 for window in found]


def test_a_window_that_is_not_used_is_none() -> None:
    for kind in ("qwen2", "qwen3", "qwen2_moe"):
        config = CONFIG_MAPPING[kind].from_dict({**TINY, **EXTRA.get(kind, {}), "sliding_window": 64})
        assert {layer.window for layer in read_shape(config).layers} == {None}


@pytest.mark.parametrize("name", [name for name in names() if name in WHOLE])
def test_a_bundled_config_has_the_parameters_of_its_checkpoint(name: str) -> None:
    config = load_config(name)
    assert read_shape(config).weights + count_vision(config) == WHOLE[name]


def test_one_token_uses_the_active_parameters_that_a_mixture_is_known_for() -> None:
    shape = read_shape(load_config("qwen3-30b-a3b"))
    idle = sum(layer.expert * (layer.experts - layer.active) for layer in shape.layers)
    assert shape.weights - idle == 3_353_032_704


def test_the_bundled_model_counts_as_what_it_is(reader: tuple[Any, Any]) -> None:
    model, _ = reader
    whole = sum(weight.numel() for weight in model.parameters())
    assert read_shape(model.config).weights + count_vision(model.config) == whole
    assert count_vision(model.config) == sum(weight.numel() for weight in model.model.visual.parameters())


def test_a_decoder_that_is_not_known_is_refused() -> None:
    config = CONFIG_MAPPING["gpt_neox"]()
    with pytest.raises(ValueError, match="`model_type` of the decoder must be one of .*qwen3.*, got 'gpt_neox'"):
        read_shape(config)
    config = CONFIG_MAPPING["llama"].from_dict(TINY)
    config.layer_types = ["linear_attention"] * 4
    with pytest.raises(ValueError, match="`layer_types` must be full_attention or sliding_attention .*got linear_att"):
        read_shape(config)
