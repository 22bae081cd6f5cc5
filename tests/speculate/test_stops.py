"""Stop rules end an answer where plain decoding ends it, at any place of a block; streamers get what they would."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from transformers import StoppingCriteria, StoppingCriteriaList, StopStringCriteria, TextIteratorStreamer
from transformers.generation.streamers import BaseStreamer

import headscope as hs
from tests.attach.models import MODELS, tokens
from tests.families.tiny import TINY
from tests.speculate.prompts import LENGTHS, padded, speculate

NEW = 12


@pytest.mark.parametrize("gamma", [1, 5, 15])
def test_every_token_of_an_answer_may_be_its_end(gamma: int) -> None:
    model, inputs = MODELS["llama"]()
    answer = model.generate(**inputs, max_new_tokens=NEW)[0, 40:].tolist()
    for end in dict.fromkeys(answer):
        for ends in (end, [96, end]):
            plain = model.generate(**inputs, max_new_tokens=NEW, eos_token_id=ends).tolist()
            decoder = speculate(model, gamma=gamma)
            found = model.generate(**inputs, max_new_tokens=NEW, eos_token_id=ends, custom_generate=decoder)
            assert found.tolist() == plain
            assert decoder.report.emitted == answer.index(end) + 1
            assert decoder.report.accepted <= decoder.report.emitted - 1


@pytest.mark.parametrize("new", range(1, 8))
def test_no_answer_is_longer_than_it_may_be(new: int) -> None:
    model, inputs = MODELS["llama"]()
    plain = model.generate(**inputs, max_new_tokens=new).tolist()
    assert model.generate(**inputs, max_new_tokens=new, custom_generate=speculate(model, gamma=5)).tolist() == plain


@pytest.mark.parametrize("new", [0, -1])
def test_no_tokens_at_all_are_a_mistake(new: int) -> None:
    model, inputs = MODELS["llama"]()
    with pytest.raises(ValueError, match="`max_new_tokens`"):
        hs.generate(model, inputs, draft="early_exit", max_new_tokens=new)
    with pytest.raises(ValueError, match="max_new_tokens"):
        model.generate(**inputs, max_new_tokens=new, custom_generate=speculate(model))


@pytest.fixture(scope="module")
def talker() -> tuple[Any, Any, dict[str, Any], str]:
    """A model with a tokenizer, a prompt, and its plain answer as text."""
    model, processor = TINY["qwen2_vl"]()
    model.generation_config.eos_token_id = None
    inputs = {"input_ids": torch.randint(300, 900, (1, 20), generator=torch.Generator().manual_seed(1))}
    answer = model.generate(**inputs, max_new_tokens=NEW)[0, 20:]
    return model, processor.tokenizer, inputs, processor.tokenizer.decode(answer)


@pytest.mark.parametrize("gamma", [2, 6])
def test_stop_strings_end_an_answer_within_a_token_across_tokens_and_across_blocks(talker: Any, gamma: int) -> None:
    model, tokenizer, inputs, text = talker
    cuts = [text[first : first + length] for first in range(0, len(text) - 4, 3) for length in (1, 4)]
    for stop in dict.fromkeys(cuts):
        asked = {"max_new_tokens": NEW, "stop_strings": [stop], "tokenizer": tokenizer}
        plain = model.generate(**inputs, **asked).tolist()
        found = hs.generate(model, inputs, draft="observation_window", per_head=15, window=4, gamma=gamma, **asked)
        assert found.tolist() == plain, stop
    rule = StoppingCriteriaList([StopStringCriteria(tokenizer, cuts[-1])])
    plain = model.generate(**inputs, max_new_tokens=NEW, stopping_criteria=rule).tolist()
    decoder = speculate(model, gamma=gamma)
    assert model.generate(**inputs, max_new_tokens=NEW, stopping_criteria=rule, custom_generate=decoder).tolist() == (
        plain
    )


def test_a_stop_string_behind_the_greatest_length_does_not_matter(talker: Any) -> None:
    model, tokenizer, inputs, text = talker
    asked = {"max_new_tokens": 3, "stop_strings": text[-3:], "tokenizer": tokenizer}
    plain = model.generate(**inputs, **asked).tolist()
    assert hs.generate(model, inputs, draft="early_exit", gamma=6, **asked).tolist() == plain


class Counting(StoppingCriteria):
    """Ends a row at a length of its own, and remembers what it was shown."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths, self.seen = torch.tensor(lengths), list[Any]()

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        self.seen.append(input_ids.tolist())
        return input_ids.shape[1] >= 40 + self.lengths


@pytest.mark.parametrize("ends", [None, 95, [*range(5, 97, 9)]])
@pytest.mark.parametrize("lengths", [[3, 7, 5], [1, 1, 9], [20, 2, 20]])
def test_a_rule_of_ones_own_is_asked_at_each_token_and_ends_rows_where_it_would(lengths: list[int], ends: Any) -> None:
    model, _ = MODELS["llama"]()
    inputs = padded(LENGTHS[:3])
    plain, own = Counting(lengths), Counting(lengths)
    asked = {**inputs, "max_new_tokens": NEW, "eos_token_id": ends}
    expected = model.generate(**asked, stopping_criteria=StoppingCriteriaList([plain]))
    decoder = speculate(model, gamma=4)
    found = model.generate(**asked, stopping_criteria=StoppingCriteriaList([own]), custom_generate=decoder)
    assert found.tolist() == expected.tolist()
    assert own.seen == plain.seen


def test_time_that_is_up_ends_an_answer() -> None:
    model, inputs = MODELS["llama"]()
    start = time.perf_counter()
    found = model.generate(**inputs, max_new_tokens=3000, max_time=0.2, custom_generate=speculate(model))
    assert 41 <= found.shape[1] < 3040 and time.perf_counter() - start < 20


class Streamed(BaseStreamer):
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.given: list[Any] = []

    def put(self, value: torch.Tensor) -> None:
        self.given.append(value.tolist())

    def end(self) -> None:
        self.given.append("end")


@pytest.mark.parametrize("lengths", [(40,), (40, 23, 3)])
def test_a_streamer_gets_the_prompt_each_token_and_the_end(lengths: tuple[int, ...]) -> None:
    model, _ = MODELS["llama"]()
    inputs, plain, own = padded(lengths), Streamed(), Streamed()
    asked = {"max_new_tokens": NEW, "eos_token_id": [*range(5, 97, 9)]}
    model.generate(**inputs, **asked, streamer=plain)
    hs.generate(model, inputs, draft="observation_window", per_head=30, window=4, gamma=4, **asked, streamer=own)
    assert own.given == plain.given


def test_a_text_streamer_hears_the_answer(talker: Any) -> None:
    model, tokenizer, inputs, text = talker
    streamer = TextIteratorStreamer(tokenizer, skip_prompt=True)
    hs.generate(model, inputs, draft="prompt_lookup", max_new_tokens=NEW, streamer=streamer)
    assert "".join(streamer) == text


def test_stop_strings_need_a_tokenizer() -> None:
    with pytest.raises(ValueError, match="`tokenizer` is required with `stop_strings`"):
        hs.SparseToDense("early_exit", stop_strings="x")


def test_rows_end_one_by_one_and_the_counts_are_of_what_was_emitted() -> None:
    model, _ = MODELS["llama"]()
    decoder = speculate(model, gamma=4)
    inputs = {"input_ids": torch.cat([tokens(40, seed=0), tokens(40, seed=7)])}
    ends = model.generate(**inputs, max_new_tokens=NEW)[0, 44].item()
    out = model.generate(**inputs, max_new_tokens=NEW, eos_token_id=ends, custom_generate=decoder)
    emitted = sum(row.index(ends) + 1 if ends in row else NEW for row in out[:, 40:].tolist())
    report = decoder.report
    assert report.emitted == emitted == report.accepted + report.row_rounds + 2
    assert sum(report.lengths) == report.row_rounds
