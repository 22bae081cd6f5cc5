"""Inside a sparse block the fused step leaves out what the model's own projections leave out."""

from __future__ import annotations

import torch
from transformers import DynamicCache

from headscope.families.projections import PROJECTIONS, projections
from headscope.fused import fuse
from headscope.sparsity import Switch, Thresholds, sparsify
from tests.attach.models import CACHE, MODELS
from tests.fused.test_step import prefilled


def thresholds(model: object, value: float = 0.4) -> Thresholds:
    layers = projections(model)  # type: ignore[arg-type]
    values = torch.full((len(layers), len(PROJECTIONS)), value)
    values[0, 2] = values[1, 6] = 0
    weights = torch.tensor([[module.weight.numel() for module in layer.values()] for layer in layers])  # type: ignore[union-attr, operator]
    return Thresholds(values, torch.full(values.shape, 0.5), weights)


def test_a_single_row_leaves_small_inputs_out() -> None:
    model, inputs = MODELS["qwen3"]()
    layers, cache, token, position = prefilled(model, inputs)
    with torch.no_grad(), sparsify(model, thresholds(model)):
        step = fuse(model)
        assert step is not None and step.stack.sparse
        expected = model(input_ids=token, **{CACHE: cache}, use_cache=True).logits
        found = step(token, position, layers)
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=2e-4)
    dense = fuse(model)
    assert dense is not None and not dense.stack.sparse
    assert (dense(token, position, prefilled(model, inputs)[0]) - found).abs().max() > 1e-3


def test_several_rows_and_a_switched_off_block_are_dense() -> None:
    model, inputs = MODELS["llama"]()
    switch = Switch()
    expected = fuse(model)(torch.tensor([[5, 6]]), torch.tensor([[40, 41]]), prefilled(model, inputs)[0])  # type: ignore[misc]
    with torch.no_grad(), sparsify(model, thresholds(model), switch=switch):
        found = fuse(model)(torch.tensor([[5, 6]]), torch.tensor([[40, 41]]), prefilled(model, inputs)[0])  # type: ignore[misc]
        torch.testing.assert_close(found, expected)
        with switch.off():
            step = fuse(model)
            assert step is not None and not step.stack.sparse


def test_other_limits_are_left_to_the_model() -> None:
    model, _ = MODELS["llama"]()
    with sparsify(model, thresholds(model), rows=None):
        assert fuse(model) is None
    assert isinstance(DynamicCache(), DynamicCache) and fuse(model) is not None
