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


def shape_config(name: str, layers: int | None = None) -> Any:
    """Give the config of a name or a path. layers: fewer than it has, for a try."""
    config = load_config(name)
    if layers is not None:
        config.get_text_config().num_hidden_layers = layers
        if getattr(config.get_text_config(), "layer_types", None):
            config.get_text_config().layer_types = config.get_text_config().layer_types[:layers]
    return config


@torch.no_grad()
def drawn_model(config: Any, device: torch.device, dtype: torch.dtype = torch.bfloat16) -> Any:
    """Build a text model with random weights at once on its device, without the initialisation of its own.

    Matrices are drawn from a normal distribution of deviation 0.02; norms are 1 and biases 0, as in a new model.
    """
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
    model.to_empty(device=device).tie_weights()
    torch.manual_seed(0)
    for name, weight in model.named_parameters():
        if weight.ndim > 1:
            weight.normal_(std=0.02)
        else:
            weight.fill_(0.0 if name.endswith("bias") else 1.0)
    for module in model.modules():
        if hasattr(module, "inv_freq"):  # computed when it was made, so without numbers on "meta"
            with torch.device(device):
                made = type(module)(module.config)
            for buffer, fresh in made.named_buffers():
                getattr(module, buffer).copy_(fresh)
    return model


def random_model(
    name: str, device: torch.device, dtype: torch.dtype = torch.bfloat16, layers: int | None = None
) -> Any:
    """Build a model of a shipped config with random weights. layers: fewer of them, for a try."""
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

    config = shape_config(name, layers)
    kind = AutoModelForCausalLM if type(config) in MODEL_FOR_CAUSAL_LM_MAPPING else AutoModelForImageTextToText
    torch.manual_seed(0)
    with torch.device(device):
        return kind.from_config(config, dtype=dtype).eval()
