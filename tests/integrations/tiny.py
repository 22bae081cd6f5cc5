"""Tiny random models with a prompt each, for the transformers that kvpress pins; no processors, which differ there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import (
    CLIPVisionConfig,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    LlavaConfig,
    LlavaForConditionalGeneration,
    PreTrainedModel,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
)

Tiny = tuple[PreTrainedModel, dict[str, Any]]

LAYERS, HEADS, KV_HEADS = 3, 4, 2
IMAGE, CELLS = 120, 16
SPECIAL = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
TEXT = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    **SPECIAL,
}
ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 2, 2]}}
IDS = {"vision_start_token_id": 118, "vision_end_token_id": 119, "image_token_id": IMAGE, "video_token_id": 121}
TOWER = {
    "depth": 2,
    "num_heads": 2,
    "hidden_size": 32,
    "out_hidden_size": 64,
    "intermediate_size": 64,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}


def llama(vocab_size: int = 128) -> Tiny:
    """Build a text model and a prompt of 40 tokens."""
    return _model(LlamaForCausalLM, LlamaConfig(**TEXT | {"vocab_size": vocab_size})), {"input_ids": _text(40)}


def llava() -> Tiny:
    """Build a LLaVA-1.5 and a prompt with a picture of 16 cells."""
    vision = CLIPVisionConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=56,
        patch_size=14,
        projection_dim=32,
    )
    config = LlavaConfig(vision_config=vision, text_config=LlamaConfig(**TEXT), image_token_index=IMAGE)
    return _model(LlavaForConditionalGeneration, config), _prompt() | {"pixel_values": _noise(1, 3, 56, 56)}


def qwen2_5_vl() -> Tiny:
    """Build a Qwen2.5-VL, with three rotary axes, and a prompt with a picture of 16 cells."""
    vision = TOWER | {"patch_size": 14, "window_size": 112, "fullatt_block_indexes": [1]}
    config = Qwen2_5_VLConfig(text_config=TEXT | ROPE, vision_config=vision, tie_word_embeddings=False, **IDS)
    return _model(Qwen2_5_VLForConditionalGeneration, config), _prompt() | _picture(14)


def qwen3_vl() -> Tiny:
    """Build a Qwen3-VL, which normalises its queries, and a prompt with a picture of 16 cells."""
    vision = TOWER | {"patch_size": 16, "num_position_embeddings": 64, "deepstack_visual_indexes": [0]}
    config = Qwen3VLConfig(text_config=TEXT | ROPE | {"head_dim": 16}, vision_config=vision, **IDS)
    return _model(Qwen3VLForConditionalGeneration, config), _prompt() | _picture(16)


TINY: dict[str, Callable[[], Tiny]] = {"llama": llama, "llava": llava, "qwen2_5_vl": qwen2_5_vl, "qwen3_vl": qwen3_vl}


def _prompt() -> dict[str, Any]:
    """Give 40 tokens, the picture in the middle."""
    text = _text(40 - CELLS - 2)
    picture = torch.tensor([[118, *[IMAGE] * CELLS, 119]])
    ids = torch.cat([text[:, :9], picture, text[:, 9:]], dim=1)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def _picture(patch_size: int) -> dict[str, Any]:
    return {
        "pixel_values": _noise(4 * CELLS, 3 * 2 * patch_size**2),
        "image_grid_thw": torch.tensor([[1, 8, 8]]),
    }


def _text(length: int) -> torch.Tensor:
    return torch.randint(3, 100, (1, length), generator=torch.Generator().manual_seed(length))


def _noise(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def _model(kind: Any, config: Any) -> PreTrainedModel:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = kind(config).float().eval()
    # Random weights attend almost evenly; larger ones make heads choose.
    for name, weight in model.named_parameters():
        if name.endswith(("q_proj.weight", "k_proj.weight")) and "vision" not in name:
            weight.data.mul_(8)
        elif name.endswith("q_norm.weight"):
            weight.data.uniform_(0.5, 4, generator=torch.Generator().manual_seed(0))
    model.generation_config = GenerationConfig(do_sample=False, bos_token_id=1, pad_token_id=0)
    return model
