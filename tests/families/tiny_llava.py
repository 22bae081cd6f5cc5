"""Tiny random models of the LLaVA families, float32, with their real processor classes and the bundled tokenizer."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from transformers import (
    AutoTokenizer,
    CLIPImageProcessor,
    CLIPVisionConfig,
    GenerationConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaNextConfig,
    LlavaNextForConditionalGeneration,
    LlavaNextImageProcessor,
    LlavaNextProcessor,
    LlavaOnevisionConfig,
    LlavaOnevisionForConditionalGeneration,
    LlavaOnevisionImageProcessor,
    LlavaOnevisionProcessor,
    LlavaOnevisionVideoProcessor,
    LlavaProcessor,
    MistralConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Qwen2Config,
    SiglipVisionConfig,
)

from tests.families.tiny_qwen import READER, SPECIAL, Tiny

IMAGE, VIDEO = 1536, 1537
PATCH = 14
TEMPLATE = (
    "{% for message in messages %}{% for part in message['content'] %}"
    "{% if part['type'] == 'text' %}{{ part['text'] }}{% else %}<{{ part['type'] }}>{% endif %}"
    "{% endfor %}{% endfor %}{% if add_generation_prompt %} {% endif %}"
)
TEXT = {
    "vocab_size": 1538,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 16384,
    "tie_word_embeddings": False,
    **SPECIAL,
}
TOWER = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "patch_size": PATCH,
}


def llava_15(image_processor: Any = None, tile: int = 56) -> Tiny:
    """Build a tiny LLaVA-1.5: a CLIP tower whose stock processor crops the centre to tile x tile pixels."""
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(image_size=tile, projection_dim=32, **TOWER),
        text_config=LlamaConfig(**TEXT | {"num_key_value_heads": 4}),
        image_token_index=IMAGE,
    )
    settings = image_processor or CLIPImageProcessor(
        size={"shortest_edge": tile}, crop_size={"height": tile, "width": tile}
    )
    return _model(LlavaForConditionalGeneration, config), _processor(LlavaProcessor, settings)


def llava_next_vicuna(tile: int = 28, pinpoints: list[list[int]] | None = None) -> Tiny:
    """Build a tiny LLaVA-NeXT on Vicuna's architecture: as many KV heads as query heads."""
    return _next(LlamaConfig(**TEXT | {"num_key_value_heads": 4}), tile, pinpoints)


def llava_next_mistral(tile: int = 28, pinpoints: list[list[int]] | None = None) -> Tiny:
    """Build a tiny LLaVA-NeXT on Mistral's architecture: two query heads to a KV head."""
    return _next(MistralConfig(**TEXT | {"sliding_window": None}), tile, pinpoints)


def llava_onevision(tile: int = 28, grid: int = 6, limit: int = 9) -> Tiny:
    """Build a tiny LLaVA-OneVision: a SigLIP tower, 1 x 1 to grid x grid tiles, shrunk above `limit` tiles of cells."""
    pinpoints = [[rows * tile, columns * tile] for rows in range(1, grid + 1) for columns in range(1, grid + 1)]
    config = LlavaOnevisionConfig(
        vision_config=SiglipVisionConfig(image_size=tile, vision_use_head=False, **TOWER),
        text_config=Qwen2Config(**TEXT),
        image_token_index=IMAGE,
        video_token_index=VIDEO,
        image_grid_pinpoints=pinpoints,
        vision_aspect_ratio=f"anyres_max_{limit}",
    )
    size = {"height": tile, "width": tile}
    processor = LlavaOnevisionProcessor(
        LlavaOnevisionImageProcessor(size=size, image_grid_pinpoints=pinpoints),
        _tokenizer(),
        LlavaOnevisionVideoProcessor(size=size),
        num_image_tokens=(tile // PATCH) ** 2,
        vision_feature_select_strategy="full",
        vision_aspect_ratio=config.vision_aspect_ratio,
        chat_template=TEMPLATE,
    )
    return _model(LlavaOnevisionForConditionalGeneration, config), processor


def _next(text: PreTrainedConfig, tile: int, pinpoints: list[list[int]] | None) -> Tiny:
    """Build a LLaVA-NeXT; its pinpoints are the published ones in tiles (1 x 2, 2 x 1, 2 x 2, ...) unless given."""
    shapes = [(1, 2), (2, 1), (2, 2), (3, 1), (1, 3)]
    pinpoints = pinpoints or [[rows * tile, columns * tile] for rows, columns in shapes]
    config = LlavaNextConfig(
        vision_config=CLIPVisionConfig(image_size=tile, projection_dim=32, **TOWER),
        text_config=text,
        image_token_index=IMAGE,
        image_grid_pinpoints=pinpoints,
    )
    settings = LlavaNextImageProcessor(
        size={"shortest_edge": tile}, crop_size={"height": tile, "width": tile}, image_grid_pinpoints=pinpoints
    )
    return _model(LlavaNextForConditionalGeneration, config), _processor(LlavaNextProcessor, settings)


def _processor(kind: Any, image_processor: Any) -> Any:
    return kind(
        image_processor,
        _tokenizer(),
        patch_size=PATCH,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=TEMPLATE,
    )


@cache
def _tokenizer() -> PreTrainedTokenizerBase:
    tokenizer = AutoTokenizer.from_pretrained(READER)
    tokenizer.add_tokens(["<image>", "<video>"], special_tokens=True)
    return tokenizer


def _model(kind: Any, config: PreTrainedConfig) -> PreTrainedModel:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = kind(config).float().eval()
    model.generation_config = GenerationConfig(do_sample=False, **SPECIAL)
    return model
