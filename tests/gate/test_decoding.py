"""Decoding one token at a time gives what one pass gives, under a policy from the prompt's last token on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import headscope as hs
from headscope.gate.decoding import answer, ends, log_probs, stepping
from headscope.gate.pictures import _about
from headscope.page.source import bundled
from headscope.probing.prompt import ask
from headscope.select import observation_window
from tests.families.tiny import TINY
from tests.gate.tiny import text_model

EVEN = hs.HeadScores.from_values([[1.0] * 4] * 2, kv_heads=2)


@pytest.fixture(scope="module")
def model() -> Any:
    return text_model()


def prompt(tokens: int, seed: int = 0) -> dict[str, Tensor]:
    ids = torch.randint(2, 1536, (1, tokens), generator=torch.Generator().manual_seed(seed))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def forced(model: Any, inputs: Any, continuation: list[int]) -> Tensor:
    """One dense pass over prompt and continuation: the oracle."""
    ids = torch.cat([inputs["input_ids"], torch.tensor([continuation])], dim=1)
    given = {name: value for name, value in inputs.items() if name not in ("input_ids", "attention_mask")}
    given = {
        name: torch.nn.functional.pad(value, (0, len(continuation))) if "token_type" in name else value
        for name, value in given.items()
    }
    with torch.no_grad():
        logits = model(input_ids=ids, attention_mask=torch.ones_like(ids), **given).logits[0].double()
    rows = logits[inputs["input_ids"].shape[1] - 1 : -1].log_softmax(-1)
    return rows.gather(-1, torch.tensor(continuation)[:, None])[:, 0]


def test_dense_decoding_is_teacher_forcing(model: Any) -> None:
    inputs, continuation = prompt(40), prompt(30, seed=1)["input_ids"][0].tolist()
    found = log_probs(model, inputs, continuation)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, forced(model, inputs, continuation), atol=1e-4, rtol=0)


@pytest.mark.parametrize("pieces", [True, False])
def test_a_full_budget_is_teacher_forcing(model: Any, pieces: bool) -> None:
    inputs, continuation = prompt(40), prompt(30, seed=1)["input_ids"][0].tolist()
    policy = partial(hs.compress, scores=EVEN, rule="full", window=8, pieces=pieces)
    found = log_probs(model, inputs, continuation, policy)
    torch.testing.assert_close(found, forced(model, inputs, continuation), atol=1e-4, rtol=0)


@pytest.mark.parametrize("rule", [None, "full"])
def test_a_page_s_text_is_scored_as_in_one_pass(reader: Any, rule: str | None) -> None:
    """With pictures, whose positions are not the tokens' numbers."""
    model, processor = reader
    page = bundled("evaluation", 1)[0]
    inputs = _about(processor, page, "Read the text.")
    continuation = processor.tokenizer(page.text, add_special_tokens=False).input_ids[:12]
    scores = hs.HeadScores.from_values([[1.0] * 12] * 12, kv_heads=4)
    policy = {} if rule is None else {"policy": partial(hs.compress, scores=scores, rule=rule, window=16)}
    found = log_probs(model, inputs, continuation, **policy)
    torch.testing.assert_close(found, forced(model, inputs, continuation), atol=1e-4, rtol=0)


@pytest.mark.parametrize("family", TINY)
def test_every_family_s_prompt_can_be_cut_before_its_last_token(family: str) -> None:
    model, processor = TINY[family]()
    page = np.random.default_rng(0).integers(0, 256, (56, 84, 3), dtype=np.uint8)
    inputs = ask(processor, [page], "Read it.")
    continuation = prompt(5)["input_ids"][0].tolist()
    expected = forced(model, inputs, continuation)
    torch.testing.assert_close(log_probs(model, inputs, continuation), expected, atol=1e-4, rtol=0)


def test_a_smaller_cache_changes_the_first_scored_token(model: Any) -> None:
    """It is predicted by the prompt's last token, whose own step runs under the policy."""
    inputs, continuation = prompt(40), [5, 6]
    policy = partial(hs.compress, scores=EVEN, rule="uniform", per_head=4, window=2)
    found = log_probs(model, inputs, continuation, policy)
    assert (found - forced(model, inputs, continuation)).abs().min() > 1e-4


@pytest.mark.parametrize("pieces", [True, False])
def test_a_selection_sees_the_prompt_without_its_last_token(model: Any, pieces: bool) -> None:
    seen: list[tuple[int, Tensor]] = []

    def select(given: Any, kept: Tensor, *, window: int = 32) -> Tensor:
        seen.append((given.tokens, kept.clone()))
        return observation_window(given, kept, window=window)

    policy = partial(hs.compress, scores=EVEN, rule="uniform", ratio_kept=0.25, window=4, select=select, pieces=pieces)
    answer(model, prompt(41), policy, max_new_tokens=3)
    assert [tokens for tokens, _ in seen] == [40, 40]
    assert all(bool((kept == 10).all()) for _, kept in seen)


def test_the_decode_policy_is_around_single_tokens_only(model: Any) -> None:
    lengths: dict[str, list[int]] = {"around": [], "steps": []}

    def watching(name: str) -> Any:
        @contextmanager
        def block(at: Any) -> Iterator[None]:
            hook = at.register_forward_pre_hook(
                lambda _module, _args, given: lengths[name].append(given["input_ids"].shape[1]), with_kwargs=True
            )
            yield
            hook.remove()

        return block

    log_probs(model, prompt(9), [3, 4], watching("around"), watching("steps"))
    assert lengths == {"around": [8, 1, 1], "steps": [1, 1]}


def test_an_answer_is_greedy_generation_s_and_ends_before_its_stop(model: Any) -> None:
    inputs = prompt(12)
    whole = model.generate(**inputs, do_sample=False, max_new_tokens=8, eos_token_id=None)[0, 12:].tolist()
    assert answer(model, inputs, max_new_tokens=8) == whole
    stop = whole[4]
    assert answer(model, inputs, max_new_tokens=8, stop={stop}) == whole[: whole.index(stop)]
    assert ends(model) == {1}


def test_a_prompt_of_one_token_is_refused(model: Any) -> None:
    with (
        pytest.raises(ValueError, match="`inputs` must be a prompt of at least 2 tokens, got 1"),
        stepping(model, prompt(1)),
    ):
        pass


def test_logits_that_are_no_numbers_are_refused(model: Any) -> None:
    @contextmanager
    def broken(at: Any) -> Iterator[None]:
        hook = at.lm_head.register_forward_hook(lambda _module, _args, logits: logits * float("nan"))
        yield
        hook.remove()

    with pytest.raises(ValueError, match="`model` gives logits that are no numbers here; try another dtype"):
        log_probs(model, prompt(5), [3], decode=broken)
