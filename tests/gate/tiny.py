"""What the gate's tests share: a text model of random weights that takes the bundled tokenizer's ids."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from headscope.resources import find

TEXT = "The door was shut. Nobody had the key to it! Was it lost? He went away, and came back in the evening. "


def tokenizer() -> Any:
    """The bundled model's tokenizer, without the bundled model's chat template."""
    found = AutoTokenizer.from_pretrained(find("data", "reader"))
    found.chat_template = None
    return found


def text_model() -> Any:
    """Two layers, four query heads, two KV heads; random, but the same each time."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=1536,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        bos_token_id=0,
        eos_token_id=1,
        initializer_range=0.3,
    )
    return LlamaForCausalLM(config).eval()
