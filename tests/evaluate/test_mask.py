"""Masking removes a head's output, nothing else, and only inside the block."""

from typing import Any

import pytest
import torch

from headscope.evaluate.mask import mask_heads
from headscope.families import attention_modules, language_model
from tests.families.tiny import TINY


@pytest.fixture(scope="module", params=sorted(TINY))
def model(request: pytest.FixtureRequest) -> Any:
    return TINY[request.param]()[0]


def run(model: Any) -> torch.Tensor:
    ids = torch.arange(10, 19)[None]
    with torch.no_grad():
        return language_model(model)(inputs_embeds=language_model(model).get_input_embeddings()(ids)).last_hidden_state


@torch.no_grad()
def test_a_masked_head_equals_one_whose_output_weights_are_zero(model: Any) -> None:
    projection = attention_modules(model)[1].o_proj
    heads = model.config.get_text_config().num_attention_heads
    dim = projection.in_features // heads
    with mask_heads(model, [(1, 1), (1, heads - 1)]):
        masked = run(model)
    kept = projection.weight.clone()
    for head in (1, heads - 1):
        projection.weight[:, head * dim : (head + 1) * dim] = 0
    zeroed = run(model)
    projection.weight.copy_(kept)
    torch.testing.assert_close(masked, zeroed, atol=1e-6, rtol=1e-5)
    assert not torch.equal(masked, run(model))


def test_leaving_the_block_restores_the_model_also_after_an_error(model: Any) -> None:
    before = run(model)
    with pytest.raises(RuntimeError, match="inside"), mask_heads(model, [(0, 0)]):
        raise RuntimeError("inside")
    assert torch.equal(run(model), before)


def test_masking_no_head_changes_nothing(model: Any) -> None:
    before = run(model)
    with mask_heads(model, []):
        assert torch.equal(run(model), before)


def test_a_head_that_is_not_there_is_refused(model: Any) -> None:
    with pytest.raises(ValueError, match=r"`heads` must lie in .* got \(99, 0\)"), mask_heads(model, [(99, 0)]):
        pass
