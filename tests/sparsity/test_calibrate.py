"""Calibrating thresholds: on the bundled model's pages, and on text models of every kind."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from headscope.families.projections import PROJECTIONS, projections
from headscope.sparsity import Sample, Thresholds, calibrate
from headscope.sparsity.layers import INPUTS, counted, run
from tests.attach.models import MODELS, tokens
from tests.sparsity.conftest import tiny_thresholds


@pytest.fixture(scope="module")
def found(reader: tuple[Any, Any], page_samples: list[Sample]) -> dict[str, Thresholds]:
    how = {"step": 0.25, "error_tokens": 30}
    return {rule: calibrate(reader[0], page_samples, 0.5, allocation=rule, **how) for rule in ("greedy", "uniform")}


def measured(model: Any, samples: list[Sample], thresholds: Thresholds) -> torch.Tensor:
    """Count the parts of the inputs above the thresholds anew, from what enters each projection."""
    layers, parts, first = projections(model), [], [0]
    above = torch.zeros(len(layers), len(PROJECTIONS), dtype=torch.float64)

    def hook(layer: int, place: int) -> Any:
        def count(_module: Any, args: Any) -> None:
            values = args[0][:, first[0] :].abs().float()
            above[layer, place] += (values > thresholds.values[layer, place]).double().sum() / values.shape[-1]

        return count

    for layer, modules in enumerate(layers):
        for place, module in enumerate(modules.values()):
            parts.append(module.register_forward_pre_hook(hook(layer, place)))
    for sample in samples:
        first[0] = sample.first
        run(model, sample)
    for part in parts:
        part.remove()
    return above / sum(sample.tokens - sample.first for sample in samples)


@pytest.mark.parametrize("rule", ["greedy", "uniform"])
def test_every_layer_keeps_what_was_asked_of_its_bytes(
    rule: str, found: dict[str, Thresholds], reader: tuple[Any, Any], page_samples: list[Sample]
) -> None:
    thresholds = found[rule]
    assert thresholds.keep_of_layers.sub(0.5).abs().max() < 0.02
    kept = measured(reader[0], page_samples, thresholds)
    assert torch.allclose(kept, thresholds.kept, atol=2e-6)


def test_greedy_hurts_every_layer_less_than_uniform(found: dict[str, Thresholds]) -> None:
    greedy, uniform = (found[rule].provenance["errors"] for rule in ("greedy", "uniform"))
    assert all(ours < theirs for ours, theirs in zip(greedy, uniform, strict=True))


def test_what_was_calibrated_on_is_told(found: dict[str, Thresholds], page_samples: list[Sample]) -> None:
    told = found["greedy"].provenance
    assert told["data"]["sequences"] == 2 and len(told["data"]["hash"]) == 64
    assert told["data"]["tokens"] == sum(sample.tokens for sample in page_samples)
    assert told["data"]["counted"] == sum(sample.tokens - sample.first for sample in page_samples)
    assert told["allocation"] == {"rule": "greedy", "step": 0.25, "error_tokens": 30}
    assert found["uniform"].provenance["allocation"] == {"rule": "uniform", "error_tokens": 30}
    assert found["greedy"].model["family"] == "qwen2_vl" and found["greedy"].model["layers"] == 12


@pytest.mark.parametrize("rule", ["greedy", "uniform"])
def test_thresholds_only_rise_as_less_is_kept(rule: Any) -> None:
    model = MODELS["qwen3"]()[0]
    samples = [Sample({"input_ids": tokens(30)})]
    rows = [
        calibrate(model, samples, keep, allocation=rule, step=0.3, error_tokens=8).values for keep in (0.9, 0.6, 0.3)
    ]
    assert (rows[0] <= rows[1]).all() and (rows[1] <= rows[2]).all()
    assert (rows[0] < rows[2]).any()


@pytest.mark.parametrize("name", MODELS)
def test_every_supported_model_can_be_calibrated(name: str) -> None:
    thresholds = tiny_thresholds(name)
    assert thresholds.values.shape == (thresholds.model["layers"], 7)
    assert abs(thresholds.keep - 0.5) < 0.02


def test_samples_come_one_at_a_time_and_counts_take_fixed_memory() -> None:
    model, alive, most = MODELS["llama"]()[0], 0, 0

    def one_at_a_time() -> Any:
        nonlocal alive, most
        for seed in range(6):
            alive += 1
            most = max(most, alive)
            yield Sample({"input_ids": tokens(20, seed=seed)}, 5)
            alive -= 1

    thresholds = calibrate(model, one_at_a_time(), 0.5, error_tokens=1, step=0.5)
    assert most == 1 and thresholds.provenance["data"]["counted"] == 90
    with counted(model, lambda: 0) as histograms:
        run(model, Sample({"input_ids": tokens(20)}))
    assert [set(layer) for layer in histograms] == [set(INPUTS)] * 3 and len(INPUTS) == 4
    assert all(
        histogram.total == 20 * width
        for layer in histograms
        for histogram, width in zip(layer.values(), (64, 64, 64, 96), strict=True)
    )


def test_keeping_everything_is_threshold_0_everywhere() -> None:
    thresholds = calibrate(MODELS["llama"]()[0], [Sample({"input_ids": tokens(20)})], 1.0, error_tokens=1)
    assert not thresholds.values.any() and thresholds.keep == 1 and not any(thresholds.provenance["errors"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"keep": 0.01}, "`keep` must be the part of the projections' bytes to read, 0.05..1, got 0.01"),
        ({"keep": 1.1}, "`keep` must be .* got 1.1"),
        ({"step": 0}, "`step` must be a sparsity above 0 and at most 1, got 0"),
        ({"error_tokens": 0}, "`error_tokens` must be a whole number of tokens above 0, got 0"),
        ({"samples": []}, "`samples` must hold at least one, got none"),
    ],
)
def test_settings_that_cannot_be_followed_are_named(change: dict[str, Any], message: str) -> None:
    given = {"samples": [Sample({"input_ids": tokens(5)})], "keep": 0.5, **change}
    with pytest.raises(ValueError, match=message):
        calibrate(MODELS["llama"]()[0], **given)


def test_a_model_with_other_projections_is_refused() -> None:
    from transformers import MixtralConfig, MixtralForCausalLM

    small = {"hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1}
    model = MixtralForCausalLM(MixtralConfig(**small, vocab_size=20, num_hidden_layers=1, num_local_experts=2))
    with pytest.raises(ValueError, match="layer 0 lacks gate_proj .* experts or of joined projections are not handled"):
        calibrate(model, [Sample({"input_ids": tokens(5)})])
