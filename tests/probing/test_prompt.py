"""The prompt is recorded once and continued exactly, with its picture encoded once (CASES B30, B31)."""

from typing import Any

import numpy as np
import pytest
import torch

from headscope.families import language_model
from headscope.probing.prompt import ask, record
from tests.families.tiny import TINY


def page(height: int = 84, width: int = 112, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.fixture(scope="module", params=sorted(TINY))
def tiny(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    return TINY[request.param]()


@torch.no_grad()
def test_a_continued_prompt_gives_the_logits_of_a_full_forward(tiny: tuple[Any, Any]) -> None:
    model, processor = tiny
    inputs = ask(processor, [page()], "Read the text.")
    with record(language_model(model)) as recorded:
        output = model.generate(**inputs, do_sample=False, max_new_tokens=6, min_new_tokens=6)
    answer = output[0, inputs["input_ids"].shape[1] :]
    hidden = language_model(model)(**recorded.extended(language_model(model), answer)).last_hidden_state
    whole = dict(inputs, input_ids=output, attention_mask=torch.ones_like(output))
    if "mm_token_type_ids" in inputs:
        whole["mm_token_type_ids"] = torch.nn.functional.pad(inputs["mm_token_type_ids"], (0, len(answer)))
    torch.testing.assert_close(model.lm_head(hidden), model(**whole).logits, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_recording_leaves_prefill_and_tokens_bit_identical(tiny: tuple[Any, Any]) -> None:
    model, processor = tiny
    inputs = ask(processor, [page()], "Read the text.")
    plain, tokens = model(**inputs).logits, model.generate(**inputs, do_sample=False, max_new_tokens=5)
    with record(language_model(model)):
        assert torch.equal(model(**inputs).logits, plain)
    with record(language_model(model)):
        assert torch.equal(model.generate(**inputs, do_sample=False, max_new_tokens=5), tokens)
    assert not language_model(model)._forward_pre_hooks


@torch.no_grad()
def test_the_prompt_can_be_recorded_without_running_the_decoder(tiny: tuple[Any, Any]) -> None:
    model, processor = tiny
    inputs = ask(processor, [page()], "Read the text.")
    ran = []
    handle = language_model(model).layers[0].register_forward_hook(lambda *_: ran.append(1))
    with record(language_model(model), stop=True) as recorded:
        model(**inputs)
    handle.remove()
    assert not ran and recorded.tokens == inputs["input_ids"].shape[1]


def test_an_error_inside_the_block_comes_out_and_leaves_no_hook(tiny: tuple[Any, Any]) -> None:
    decoder = language_model(tiny[0])
    with pytest.raises(RuntimeError, match="outside"), record(decoder, stop=True):
        raise RuntimeError("outside")
    assert not decoder._forward_pre_hooks


def test_a_processor_without_a_chat_template_is_refused() -> None:
    class Bare:
        chat_template = None

    with pytest.raises(ValueError, match="`processor` .Bare. needs a chat template"):
        ask(Bare(), [page()], "Read the text.")


def test_pictures_of_few_columns_keep_their_shape(reader: tuple[Any, Any]) -> None:
    inputs = ask(reader[1], [page(200, 3), page(56, 56)], "Read the text.")
    assert inputs["image_grid_thw"].tolist()[0][1] > inputs["image_grid_thw"].tolist()[0][2]
