"""Tiny random models of the Qwen families, float32, with their real processor classes and the bundled tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoTokenizer,
    GenerationConfig,
    PreTrainedModel,
    ProcessorMixin,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLProcessor,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen2VLImageProcessor,
    Qwen2VLProcessor,
    Qwen2VLVideoProcessor,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
)

READER = Path(__file__).parents[2] / "data" / "reader"

Tiny = tuple[PreTrainedModel, ProcessorMixin]

SPECIAL = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
IDS = {"vision_start_token_id": 3, "vision_end_token_id": 4, "image_token_id": 5, "video_token_id": 6}
TEXT = {
    "vocab_size": 1536,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 8192,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 2, 2]},
    "tie_word_embeddings": False,
    **SPECIAL,
}
TOWER = {"depth": 2, "num_heads": 2, "spatial_merge_size": 2, "temporal_patch_size": 2}


def qwen2_vl() -> Tiny:
    """Build a tiny Qwen2-VL: patches of 14, cells of 28 pixels."""
    vision = TOWER | {"embed_dim": 32, "hidden_size": 64, "mlp_ratio": 2, "patch_size": 14}
    config = Qwen2VLConfig(text_config=dict(TEXT), vision_config=vision, tie_word_embeddings=False, **IDS)
    return _model(Qwen2VLForConditionalGeneration, config), _processor(Qwen2VLProcessor, Qwen2VLVideoProcessor, 14)


def qwen2_5_vl() -> Tiny:
    """Build a tiny Qwen2.5-VL: a tower with windows of 112 pixels in its first block."""
    vision = TOWER | {
        "hidden_size": 32,
        "out_hidden_size": 64,
        "intermediate_size": 64,
        "patch_size": 14,
        "window_size": 112,
        "fullatt_block_indexes": [1],
    }
    config = Qwen2_5_VLConfig(text_config=dict(TEXT), vision_config=vision, tie_word_embeddings=False, **IDS)
    return _model(Qwen2_5_VLForConditionalGeneration, config), _processor(
        Qwen2_5_VLProcessor, Qwen2VLVideoProcessor, 14
    )


def qwen3_vl() -> Tiny:
    """Build a tiny Qwen3-VL: patches of 16, cells of 32 pixels, a head_dim (16) that is not width / heads (12)."""
    vision = TOWER | {
        "hidden_size": 32,
        "out_hidden_size": 48,
        "intermediate_size": 64,
        "patch_size": 16,
        "num_position_embeddings": 64,
        "deepstack_visual_indexes": [0],
    }
    text = TEXT | {"hidden_size": 48, "head_dim": 16}
    config = Qwen3VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=False, **IDS)
    return _model(Qwen3VLForConditionalGeneration, config), _processor(Qwen3VLProcessor, Qwen3VLVideoProcessor, 16)


def _model(kind: Any, config: Any) -> PreTrainedModel:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = kind(config).float().eval()
    model.generation_config = GenerationConfig(do_sample=False, **SPECIAL)
    return model


def _processor(kind: Any, video: Any, patch_size: int) -> ProcessorMixin:
    """Make the processor: pictures of 4 to 64 cells, video of 4 to 128 cells, no frame left out."""
    cell = (2 * patch_size) ** 2
    tokenizer = AutoTokenizer.from_pretrained(READER)
    images = Qwen2VLImageProcessor(patch_size=patch_size, size={"shortest_edge": 4 * cell, "longest_edge": 64 * cell})
    videos = video(
        patch_size=patch_size, size={"shortest_edge": 4 * cell, "longest_edge": 128 * cell}, do_sample_frames=False
    )
    return kind(images, tokenizer, videos, chat_template=tokenizer.chat_template)
