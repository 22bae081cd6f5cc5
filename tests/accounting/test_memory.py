"""Memory holds every weight and every cache, the vision tower too."""

from __future__ import annotations

import pytest

import headscope as hs


def test_memory_is_all_parameters_and_the_cache() -> None:
    found = hs.account("qwen2-vl-7b", context=32768, batch=8).memory
    assert found.weights + found.vision == 2 * 8_291_375_616
    assert found.kv == 8 * 32768 * 57344
    assert found.total == found.weights + found.vision + found.kv
    assert found.total - found.compressed == pytest.approx(0.7 * found.kv)


def test_the_vision_tower_takes_memory_and_is_not_read_in_a_step() -> None:
    """The decoder of LLaVA-NeXT-Mistral is a Mistral with another vocabulary: its step reads no more."""
    vision = hs.account("llava-next-mistral-7b", dtype="bfloat16")
    text = hs.account("mistral-7b")
    assert vision.memory.vision > 6e8 and text.memory.vision == 0
    assert vision.step.projections == text.step.projections and vision.step.other == text.step.other


def test_experts_that_are_idle_take_memory_all_the_same() -> None:
    found = hs.account("mixtral-8x7b", context=1024)
    assert found.memory.weights == 2 * 46_702_792_704
    assert found.step.weights < 0.3 * found.memory.weights


def test_quantised_projections_leave_the_rest_as_it_is() -> None:
    found = hs.account("llama-3.1-8b", weight_dtype="int4").memory
    tables = 2 * 2 * 4096 * 128256
    norms = 2 * (64 + 1) * 4096
    assert found.weights == 32 * 218_103_808 / 2 + tables + norms
