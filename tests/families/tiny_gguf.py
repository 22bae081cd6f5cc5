"""A tiny text model as a GGUF file, with the bundled model's tokenizer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from headscope.resources import find


def write_gguf(model: Any, path: Path) -> None:
    """Write a Llama in float32: query and key rows pair up as GGUF has them, halves interleaved."""
    import gguf

    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    _add_tokenizer(writer)
    for name, weight in model.state_dict().items():
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
        count = next((number for part, number in heads.items() if part in name), None)
        array = weight.numpy()
        writer.add_tensor(_renamed(name), array if count is None else _interleaved(array, count))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tokenizer(writer: Any) -> None:
    stored = json.loads((find("data", "reader") / "tokenizer.json").read_text(encoding="utf-8"))
    added = {at["id"]: at["content"] for at in stored["added_tokens"]}
    by_id = {number: token for token, number in stored["model"]["vocab"].items()} | added
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in stored["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([by_id[number] for number in range(len(by_id))])
    writer.add_token_types([3 if number in added else 1 for number in range(len(by_id))])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)


PARTS = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "post_attention_layernorm": "ffn_norm",
    "input_layernorm": "attn_norm",
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "model.layers.": "blk.",
}


def _renamed(name: str) -> str:
    for theirs, gguf in PARTS.items():
        name = name.replace(theirs, gguf)
    return name


def _interleaved(weight: np.ndarray, heads: int) -> np.ndarray:
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)
