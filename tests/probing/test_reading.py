"""A reading has the rows that its tokens were written by, the first token's included (CASES B31)."""

from typing import Any

import numpy as np
import pytest
import torch

from headscope.families import detect, language_model
from headscope.page.image import PageError
from headscope.probing.reading import Reader
from headscope.probing.rows import watch_rows
from tests.families.tiny import TINY

TOKENS = 3


@pytest.fixture(scope="module", params=sorted(TINY))
def read(request: pytest.FixtureRequest) -> Reader:
    model, processor = TINY[request.param]()
    model.generation_config.eos_token_id = None
    return Reader(model, processor, detect(model.config), "Read the text.", TOKENS)


def page(height: int = 84, width: int = 112) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


def steps(read: Reader, inputs: Any) -> list[tuple[torch.Tensor, ...]]:
    """Generate with the stock eager attention; give each step's, for each layer [batch, head, query, key]."""
    decoder = language_model(read.model)
    decoder.set_attn_implementation("eager")
    try:
        how = {"output_attentions": True, "return_dict_in_generate": True}
        return read.model.generate(**inputs, **read.greedy(), **how).attentions
    finally:
        decoder.set_attn_implementation("sdpa")


@torch.no_grad()
def test_each_tokens_row_is_the_attention_of_the_step_that_wrote_it(read: Reader) -> None:
    inputs, _ = read.ask("page", page())
    prompt = inputs["input_ids"].shape[1]
    stock = steps(read, inputs)
    assert [layers[0].shape[2:] for layers in stock] == [(prompt, prompt), (1, prompt + 1), (1, prompt + 2)]

    reading = read.generate("page", page())
    assert len(reading.ids) == TOKENS
    assert reading.rows([0, 1, 2]).tolist() == [prompt - 1, prompt, prompt + 1]
    seen: dict[int, torch.Tensor] = {}
    arguments = reading.arguments(read.decoder)
    watch_rows(read.decoder, arguments, reading.rows([0, 1, 2]), lambda layer, _, rows: seen.update({layer: rows}))
    assert len(seen) == read.model.config.get_text_config().num_hidden_layers
    for layer, rows in seen.items():
        for token in range(TOKENS):
            expected = stock[token][layer][0, :, -1]
            torch.testing.assert_close(rows[:, token, : prompt + token], expected, atol=1e-5, rtol=0)
            assert not rows[:, token, prompt + token :].any()


def test_a_given_answer_is_cut_at_the_longest_and_encodes_the_picture_as_generating_does(read: Reader) -> None:
    given, generated = read.given("page", page(), "one two three four five"), read.generate("page", page())
    whole = read.tokenizer("one two three four five", add_special_tokens=False)["input_ids"]
    assert given.ids.tolist() == whole[:TOKENS]
    assert given.picture.run == generated.picture.run
    assert torch.equal(given.recorded.arguments["inputs_embeds"], generated.recorded.arguments["inputs_embeds"])
    if "position_ids" in given.recorded.arguments:  # three axes; generating puts the index of the text before them
        axes = (reading.recorded.arguments["position_ids"][-3:] for reading in (given, generated))
        assert torch.equal(*axes)


def test_a_picture_that_the_processor_cannot_take_is_a_bad_page(reader: tuple[Any, Any]) -> None:
    read = Reader(*reader, detect(reader[0].config), "Read the text.", TOKENS)
    with pytest.raises(PageError, match=r"^strip: the processor cannot take it: .*200"):
        read.generate("strip", page(10, 2010))
