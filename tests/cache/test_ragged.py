"""The ragged cache as a whole: cropped, saved and loaded, copied, and its bytes."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import DynamicCache

from headscope.attach import compress
from headscope.cache import RaggedCache
from tests.attach.models import CACHE, MODELS, tokens
from tests.attach.test_block import budget_of


def started(name: str = "llama") -> tuple[Any, RaggedCache, Any]:
    """Give a model, a cache with a prompt and five tokens, and a block to go on in."""
    model, inputs = MODELS[name]()
    cache = RaggedCache()
    block = compress(model, budget_of(model, (4, 12)))
    with compress(model, budget_of(model, (4, 12))):
        model.generate(**inputs, max_new_tokens=6, **{CACHE: cache})
    return model, cache, block


def logits(model: Any, ids: torch.Tensor, cache: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(ids, **{CACHE: cache}).logits


@pytest.mark.parametrize("name", ["llama", "mistral_sliding", "qwen2_vl"])
def test_a_cache_that_is_saved_and_loaded_goes_on_as_if_nothing_had_been(name: str, tmp_path: Path) -> None:
    model, cache, block = started(name)
    cache.save(tmp_path / "cache.pt")
    loaded, copied = RaggedCache.load(tmp_path / "cache.pt"), copy.deepcopy(cache)
    assert loaded.get_seq_length() == cache.get_seq_length() and loaded.kv_bytes == cache.kv_bytes
    with block:
        expected = logits(model, tokens(3), cache)
        assert torch.equal(logits(model, tokens(3), loaded), expected)
        assert torch.equal(logits(model, tokens(3), copied), expected)


@pytest.mark.parametrize("name", ["llama", "mistral_sliding", "qwen2_vl"])
def test_what_is_cropped_leaves_no_trace(name: str) -> None:
    model, cache, block = started(name)
    with block:
        expected = logits(model, tokens(4), copy.deepcopy(cache))
        for seed in range(3):
            logits(model, tokens(5, seed=seed + 1), cache)
            cache.crop(-5)
        assert torch.allclose(logits(model, tokens(4), cache), expected, atol=1e-6)
        cache.crop(-4)
        cache.crop(-2)
    assert cache.get_seq_length() == MODELS[name]()[1]["input_ids"].shape[1] + 5 - 2


def test_a_reset_cache_takes_a_new_prompt() -> None:
    model, cache, block = started()
    with block:
        expected = model.generate(tokens(20), max_new_tokens=4, **{CACHE: RaggedCache()})
        cache.reset()
        assert model.generate(tokens(20), max_new_tokens=4, **{CACHE: cache}).tolist() == expected.tolist()


def test_the_callers_own_cache_shows_its_bytes() -> None:
    model, inputs = MODELS["llama"]()
    cache = DynamicCache()
    with pytest.raises(ValueError, match="must have been filled inside `hs.compress`"):
        full = DynamicCache(config=model.config)
        model.generate(**inputs, max_new_tokens=2, **{CACHE: full})
        RaggedCache.of(full)
    with compress(model, budget_of(model, 8)):
        model.generate(**inputs, max_new_tokens=2, **{CACHE: cache})
    ragged = RaggedCache.of(cache)
    assert ragged.kv_bytes == sum(layer.kv_bytes for layer in cache.layers) > 0
    assert ragged.dense_bytes == 3 * 2 * 2 * 41 * 16 * 4


def test_other_files_and_states_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="`path` must be a cache file"):
        RaggedCache.load(tmp_path / "none.pt")
    with pytest.raises(ValueError, match="`state` must be a ragged cache's"):
        RaggedCache().load_state_dict({"layers": []})


def test_a_cache_outside_of_a_block_says_so() -> None:
    model, _, _ = started()
    with pytest.raises(ValueError, match="only inside `hs.compress`"):
        logits(model, tokens(3), RaggedCache())
