"""The fused step gives the logits of the model's own forward pass."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from transformers import DynamicCache

from headscope.cache.segments import Segments
from headscope.families import language_model
from headscope.fused import fuse
from headscope.fused.step import advance, tie_lengths
from tests.attach.models import CACHE, MODELS, text_model

STRAIGHT = [name for name in MODELS if "sliding" not in name]


def held(cache: DynamicCache) -> list[Segments]:
    """Put a dense cache into segments, whole."""
    layers = []
    for layer in cache.layers:
        rows, kvs, tokens, _ = layer.keys.shape
        lengths = torch.full((rows, kvs), tokens, dtype=torch.int32)
        layers.append(Segments.of(layer.keys, layer.values, torch.arange(tokens).repeat(rows * kvs), lengths))
    return layers


@torch.no_grad()
def prefilled(model: Any, inputs: dict[str, Any]) -> tuple[list[Segments], DynamicCache, torch.Tensor]:
    cache = DynamicCache()
    output = model(**inputs, **{CACHE: cache}, use_cache=True)
    deltas = next((vars(m)["rope_deltas"] for m in model.modules() if "rope_deltas" in vars(m)), None)
    offset = torch.zeros(1, 1, dtype=torch.int64) if deltas is None else deltas
    return held(cache), cache, output.logits[:, -1:].argmax(-1), offset + inputs["input_ids"].shape[1]


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("name", STRAIGHT)
def test_steps_equal_the_models_own(name: str, tied: bool) -> None:
    model, inputs = MODELS[name]()
    layers, cache, token, position = prefilled(model, inputs)
    step = fuse(model)
    assert step is not None
    if tied:
        tie_lengths(layers)
    for _ in range(3):
        with torch.no_grad():
            expected = model(input_ids=token, **{CACHE: cache}, use_cache=True).logits
        logits = step(token, position, layers)
        torch.testing.assert_close(logits, expected, atol=2e-5, rtol=2e-4)
        token, position = logits.argmax(-1), position + 1
    assert int(layers[0].lengths[0, 0]) == cache.get_seq_length()


def test_several_tokens_in_one_step_equal_one_after_another() -> None:
    model, inputs = MODELS["qwen3"]()
    one, _, token, position = prefilled(model, inputs)
    several = prefilled(model, inputs)[0]
    step = fuse(model)
    assert step is not None
    ids, logits = [token], []
    for place in range(4):
        logits.append(step(ids[-1], position + place, one))
        ids.append(logits[-1].argmax(-1))
    found = step(torch.cat(ids[:4], dim=1), position + torch.arange(4), several)
    torch.testing.assert_close(found, torch.cat(logits, dim=1), atol=2e-5, rtol=2e-4)


@pytest.mark.parametrize("name", ["mistral_sliding", "qwen2_sliding"])
def test_a_stack_with_sliding_windows_is_left_to_the_model(name: str) -> None:
    assert fuse(MODELS[name]()[0]) is None


def test_a_stack_with_other_modules_is_left_to_the_model() -> None:
    class Quantised(nn.Linear):
        pass

    model = MODELS["llama"]()[0]
    attention = language_model(model).layers[1].self_attn
    before = attention.q_proj
    attention.q_proj = Quantised(64, 64)
    try:
        assert fuse(model) is None
    finally:
        attention.q_proj = before


def test_a_step_reads_its_weights_once() -> None:
    model, _ = MODELS["llama"]()
    step = fuse(model)
    assert step is not None
    own = sum(each.nbytes for each in model.parameters()) - model.get_input_embeddings().weight.nbytes
    assert step.stack.weight_bytes == own


@pytest.mark.parametrize("where", ["lm_head", "model", "model.embed_tokens", "model.norm"])
def test_a_hook_around_the_layers_is_seen(where: str) -> None:
    model, _ = MODELS["llama"]()
    handle = model.get_submodule(where).register_forward_hook(lambda *given: None)
    try:
        assert fuse(model) is None
    finally:
        handle.remove()
    assert fuse(model) is not None


def test_a_weight_that_is_a_tensor_of_its_own_kind_is_left_to_the_model() -> None:
    class Packed(torch.Tensor):
        """Stands for a weight that is quantised, or split over devices, inside a plain nn.Linear."""

    projection = language_model(model := text_model("llama")).layers[1].mlp.up_proj
    assert fuse(model) is not None
    projection.weight = nn.Parameter(projection.weight.detach().as_subclass(Packed), requires_grad=False)
    assert fuse(model) is None


def test_marks_tell_where_weights_lie_and_how() -> None:
    model = text_model("qwen3")
    before = fuse(model).stack.marks  # type: ignore[union-attr]
    assert fuse(model).stack.marks == before  # type: ignore[union-attr]
    weight = language_model(model).layers[2].self_attn.k_proj.weight
    flat = weight.data.view(-1)
    weight.data = flat.view(weight.shape[1], weight.shape[0]).t()  # in its own memory, as a sparse block does
    assert fuse(model).stack.marks != before  # type: ignore[union-attr]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_lengths_that_are_tied_stay_where_they_are(mode: Any) -> None:
    layers = prefilled(*MODELS["llama"]())[0]
    with mode():
        tied = tie_lengths(layers)
        again = tie_lengths(layers)
        assert torch.equal(again, tied) and again.data_ptr() == tied.data_ptr() == layers[0].lengths.data_ptr()
        advance(layers, 2)
        assert [each.lengths.tolist() for each in layers] == tied.tolist()
        layers[1].lengths = layers[1].lengths.clone()
        other = tie_lengths(layers)
    assert torch.equal(other, tied) and other.data_ptr() != tied.data_ptr()
