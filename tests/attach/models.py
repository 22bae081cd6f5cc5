"""Tiny models of every kind that `compress` serves, each with a prompt: `MODELS[name]()` gives (model, inputs)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import transformers
from PIL import Image
from transformers import (
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from tests.families.tiny import TINY

CACHE = "cache" if tuple(map(int, transformers.__version__.split(".")[:2])) >= (5, 24) else "past_key_values"
TEXT = {
    "vocab_size": 97,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
KINDS: dict[str, tuple[Any, Any]] = {
    "llama": (LlamaForCausalLM, LlamaConfig(**TEXT)),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(**TEXT)),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config(**TEXT, head_dim=16)),
    "mistral": (MistralForCausalLM, MistralConfig(**TEXT, sliding_window=None)),
    "mistral_sliding": (MistralForCausalLM, MistralConfig(**TEXT, sliding_window=12)),
    "qwen2_sliding": (
        Qwen2ForCausalLM,
        Qwen2Config(**TEXT, use_sliding_window=True, sliding_window=12, max_window_layers=1),
    ),
}


def text_model(name: str) -> Any:
    """Build a plain text model, random and fp32, that no token ends."""
    kind, config = KINDS[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = kind(config).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.5) if parameter.ndim == 2 else None  # attention that tells tokens apart
    model.generation_config = GenerationConfig(do_sample=False, bos_token_id=1, pad_token_id=0)
    return model


def tokens(length: int, seed: int = 0, rows: int = 1) -> torch.Tensor:
    """Give random token ids [row, length] without special ones."""
    return torch.randint(3, 97, (rows, length), generator=torch.Generator().manual_seed(seed))


def picture_inputs(processor: Any, question: str = "Read the text please.", seed: int = 0) -> dict[str, Any]:
    """Give the inputs of a prompt with one picture of noise."""
    pixels = np.random.default_rng(seed).integers(0, 255, (84, 112, 3), dtype=np.uint8)
    content = [{"type": "image"}, {"type": "text", "text": question}]
    text = processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True)
    return dict(processor(text=[text], images=[Image.fromarray(pixels)], return_tensors="pt"))


@functools.cache
def _text(name: str) -> tuple[Any, dict[str, Any]]:
    return text_model(name), {"input_ids": tokens(40)}


@functools.cache
def _picture(name: str) -> tuple[Any, dict[str, Any]]:
    model, processor = TINY[name]()
    model.generation_config.eos_token_id = None
    with torch.no_grad():
        for parameter in model.model.language_model.parameters():
            parameter.mul_(2.5) if parameter.ndim == 2 else None
    return model, picture_inputs(processor)


MODELS: dict[str, Callable[[], tuple[Any, dict[str, Any]]]] = {
    **{name: functools.partial(_picture, name) for name in TINY},
    **{name: functools.partial(_text, name) for name in KINDS},
}
