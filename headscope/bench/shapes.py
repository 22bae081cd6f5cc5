"""Shapes of well-known models, for measurements with random weights."""

from __future__ import annotations

from typing import Any

import torch

QWEN2_VL_7B: dict[str, Any] = {
    "text_config": {
        "vocab_size": 152064,
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0, "mrope_section": [16, 24, 24]},
        "max_position_embeddings": 32768,
        "tie_word_embeddings": False,
    },
    "vision_config": {"depth": 32, "embed_dim": 1280, "hidden_size": 3584, "num_heads": 16, "mlp_ratio": 4},
}


def random_qwen2_vl(
    processor: Any, device: torch.device, dtype: torch.dtype, shape: dict[str, Any] | None = None
) -> Any:
    """Build a Qwen2-VL with random weights and the special tokens of `processor`; the 7B shape unless given."""
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration

    tokenizer = processor.tokenizer
    ids = tokenizer.convert_tokens_to_ids(["<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"])
    names = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")
    ends = {
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    sizes = shape or QWEN2_VL_7B
    config = Qwen2VLConfig(
        text_config={**sizes["text_config"], **ends},
        vision_config=sizes["vision_config"],
        **dict(zip(names, ids, strict=True)),
    )
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with device:
            return Qwen2VLForConditionalGeneration(config).eval()
    finally:
        torch.set_default_dtype(before)
