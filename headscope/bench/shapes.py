"""Models of well-known shapes with random weights, for measurements; the shapes are those of the bundled configs."""

from __future__ import annotations

from typing import Any

import torch

from headscope.accounting.config import load_config


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
    sizes = shape or load_config("qwen2-vl-7b").to_dict()
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


def random_model(
    name: str, device: torch.device, dtype: torch.dtype = torch.bfloat16, layers: int | None = None
) -> Any:
    """Build a model of a shipped config with random weights. layers: fewer of them, for a try."""
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

    config = load_config(name)
    if layers is not None:
        config.get_text_config().num_hidden_layers = layers
    kind = AutoModelForCausalLM if type(config) in MODEL_FOR_CAUSAL_LM_MAPPING else AutoModelForImageTextToText
    torch.manual_seed(0)
    with torch.device(device):
        return kind.from_config(config, dtype=dtype).eval()
