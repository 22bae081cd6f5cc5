"""What speculation cannot do is said at once, before the decoder has run."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import DynamicCache, StaticCache

import headscope as hs
from headscope.attach import compress
from headscope.budget import Budget
from headscope.cache import RaggedCache
from tests.attach.models import CACHE, MODELS
from tests.speculate.prompts import scores_of, speculate


@pytest.fixture
def idle() -> Any:
    """A model whose decoder must not run."""
    model, inputs = MODELS["llama"]()

    def ran(*_: Any) -> None:
        raise AssertionError("the decoder ran")

    handle = model.model.register_forward_pre_hook(ran)
    yield model, inputs
    handle.remove()


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"num_beams": 2}, "num_beams"),
        ({"num_return_sequences": 2, "do_sample": True}, "num_return_sequences"),
        ({"penalty_alpha": 0.6, "top_k": 4}, "penalty_alpha"),
        ({"prompt_lookup_num_tokens": 3}, "prompt_lookup_num_tokens"),
        ({"return_dict_in_generate": True, "output_scores": True}, "output_scores"),
        ({"return_dict_in_generate": True, "output_logits": True}, "output_logits"),
        ({"max_length": 40}, "max_new_tokens"),
    ],
)
def test_other_ways_of_decoding_are_refused(idle: Any, settings: dict[str, Any], name: str) -> None:
    model, inputs = idle
    settings = {"max_new_tokens": 5} | settings if "max_length" not in settings else settings
    with pytest.raises(ValueError, match=f"`{name}`"):
        model.generate(**inputs, **settings, custom_generate=speculate(model))
    if "output" not in str(settings) and "max_length" not in settings:
        with pytest.raises(ValueError, match=f"`{name}`"):
            hs.generate(model, inputs, draft="early_exit", **settings)


def test_an_assistant_is_refused(idle: Any) -> None:
    model, inputs = idle
    with pytest.raises(ValueError, match="`assistant_model` must be left out"):
        hs.generate(model, inputs, draft="early_exit", assistant_model=model, max_new_tokens=3)


def test_caches_that_cannot_be_followed_are_refused(idle: Any) -> None:
    model, inputs = idle
    offloaded = DynamicCache()
    offloaded.offloading = True
    for cache in (StaticCache(config=model.config, max_cache_len=64), RaggedCache(), offloaded):
        with pytest.raises(ValueError, match="must be a DynamicCache that is not offloaded"):
            model.generate(**inputs, max_new_tokens=3, **{CACHE: cache}, custom_generate=speculate(model))
    with pytest.raises(ValueError, match="`cache_implementation` must be left out"):
        hs.generate(model, inputs, draft="early_exit", cache_implementation="static", max_new_tokens=3)


def test_right_padding_is_refused() -> None:
    model, _ = MODELS["llama"]()
    ids, mask = torch.full((2, 8), 9), torch.ones(2, 8, dtype=torch.long)
    mask[1, 5:] = 0
    with pytest.raises(ValueError, match="must pad prompts on the left"):
        model.generate(ids, attention_mask=mask, max_new_tokens=3, custom_generate=speculate(model))


def test_a_model_inside_a_compress_block_is_refused() -> None:
    model, inputs = MODELS["llama"]()
    with (
        compress(model, Budget([[8, 8]] * 3, 4)),
        pytest.raises(ValueError, match=r"inside a `hs.compress` block|must be a DynamicCache"),
    ):
        model.generate(**inputs, max_new_tokens=3, custom_generate=speculate(model))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"draft": "head_budgets"}, "`draft` must be .* did you mean head_budget"),
        ({"draft": "early_exit", "per_head": 4}, "`per_head` is not a setting of the draft early_exit, which has"),
        ({"draft": "early_exit", "gamma": 0}, "`gamma` must be a whole number from 1 to 15"),
        ({"draft": "early_exit", "gamma": 16}, "`gamma` must be a whole number from 1 to 15"),
        ({"draft": "early_exit", "gamma": "fast"}, "`gamma` must be a whole number from 1 to 15"),
        ({"draft": "early_exit", "refresh": 0}, "`refresh` must be a number of rounds above 0"),
    ],
)
def test_settings_that_there_are_not_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        hs.SparseToDense(**settings)


@pytest.mark.parametrize(
    ("draft", "settings", "message"),
    [
        ("head_budget", {}, "`budget` is required"),
        ("head_budget", {"scores": "s", "budget": "b"}, "`budget` and `scores` exclude each other"),
        ("text_guided", {"per_head": 4, "window": 5}, "`per_head` must be a whole number, at least the window of 5"),
        ("early_exit", {"layers": 3}, "`layers` must be a whole number from 1 to 2"),
        ("prompt_lookup", {"ngram": 0}, "`ngram` must be a whole number of tokens above 0"),
    ],
)
def test_a_drafts_settings_are_checked_against_the_model(
    idle: Any, draft: str, settings: dict[str, Any], message: str
) -> None:
    model, inputs = idle
    with pytest.raises(ValueError, match=message):
        hs.generate(model, inputs, draft=draft, max_new_tokens=3, **settings)


def test_only_drafts_with_a_choice_can_choose_anew(idle: Any) -> None:
    model, inputs = idle
    with pytest.raises(ValueError, match="`refresh` chooses a draft's prompt tokens anew"):
        hs.generate(model, inputs, draft="prompt_lookup", refresh=2, max_new_tokens=3)


def test_scores_of_another_model_are_refused(idle: Any) -> None:
    model, inputs = idle
    other, _ = MODELS["qwen2_vl"]()
    assert scores_of(other).layers == 3
    with pytest.raises(ValueError, match="layers"):
        hs.generate(
            model, inputs, scores=hs.HeadScores.from_values([[1.0, 2.0]] * 5), per_head=8, window=4, max_new_tokens=3
        )
