"""Detection and discovery: the family by the config, the decoder's layers and nothing else's."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen3Config

from headscope.families import FAMILIES, Geometry, attention_modules, detect, geometry, language_model
from tests.families.tiny import TINY

GEOMETRIES = {
    "qwen2_vl": Geometry(3, 4, 2, 16),
    "qwen2_5_vl": Geometry(3, 4, 2, 16),
    "qwen3_vl": Geometry(3, 4, 2, 16),
    "llava": Geometry(3, 4, 4, 16),
    "llava_next": Geometry(3, 4, 4, 16),
    "llava_next_mistral": Geometry(3, 4, 2, 16),
    "llava_onevision": Geometry(3, 4, 2, 16),
}


@pytest.fixture(params=TINY, scope="module")
def named(request: pytest.FixtureRequest) -> tuple[str, PreTrainedModel]:
    return request.param, TINY[request.param]()[0]


def test_every_family_has_a_tiny_model():
    assert {detect(build()[0].config).name for build in TINY.values()} == {family.name for family in FAMILIES}


def test_the_family_is_found_by_the_config(named):
    name, model = named
    family = detect(model.config)
    assert name.startswith(family.name)
    assert family.raw_pieces == (family.name in ("llava", "llava_next"))


def test_a_model_of_no_known_family_is_refused_with_the_list_and_the_page():
    known = "qwen2_vl, qwen2_5_vl, qwen3_vl, llava, llava_next, llava_onevision"
    with pytest.raises(ValueError, match=f"`model_type` must be one of {known}, got llama; docs/families.md"):
        detect(LlamaConfig())
    with pytest.raises(ValueError, match="got none"):
        detect(SimpleNamespace())


def test_docs_name_every_family():
    page = (Path(__file__).parents[2] / "docs" / "families.md").read_text()
    assert all(f"`{name}`" in page for family in FAMILIES for name in family.model_types)


def test_the_geometry_is_the_text_model_s(named):
    name, model = named
    assert geometry(model.config) == GEOMETRIES[name]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (LlamaConfig(num_hidden_layers=2, num_attention_heads=8, hidden_size=64), Geometry(2, 8, 8, 8)),
        (
            Qwen3Config(num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=2, head_dim=32),
            Geometry(2, 8, 2, 32),
        ),
    ],
)
def test_a_text_config_has_a_geometry_too(config, expected):
    assert geometry(config) == expected


def test_only_the_text_layers_attention_is_given(named):
    _, model = named
    modules = attention_modules(model)
    assert [module.layer_idx for module in modules] == [0, 1, 2]
    inside = {id(module) for module in language_model(model).modules()}
    assert all(id(module) in inside for module in modules)
    assert sum("attn" in name.rsplit(".", 1)[-1] for name, _ in model.named_modules()) > len(modules)


def test_the_language_model_takes_inputs_embeds(named):
    _, model = named
    embeds = torch.zeros(1, 2, model.config.get_text_config().hidden_size)
    assert language_model(model)(inputs_embeds=embeds).last_hidden_state.shape == embeds.shape


def test_wrappers_are_looked_through():
    model, _ = TINY["qwen2_vl"]()
    assert language_model(torch.compile(model)) is language_model(model)
    wrapped = nn.Module()
    wrapped.get_base_model = lambda: model
    assert language_model(wrapped) is language_model(model)


def test_a_text_model_has_its_own_stack():
    config = LlamaConfig(num_hidden_layers=1, num_attention_heads=2, hidden_size=16, intermediate_size=16, vocab_size=8)
    model = LlamaForCausalLM(config)
    assert language_model(model) is model.model
    assert len(attention_modules(model)) == 1


def test_a_model_without_a_decoder_is_refused():
    with pytest.raises(ValueError, match="`model` must have its decoder layers .* Linear has none"):
        language_model(nn.Linear(1, 1))


def test_another_number_of_layers_than_the_config_s_is_refused():
    model, _ = TINY["qwen2_vl"]()
    del model.model.language_model.layers[0]
    with pytest.raises(ValueError, match="each of its 3 layers, found 2"):
        attention_modules(model)
