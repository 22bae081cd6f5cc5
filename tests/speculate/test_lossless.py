"""Greedy speculation gives exactly the tokens of plain greedy decoding, whatever the draft proposes (fp32)."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from transformers import DynamicCache, LogitsProcessor, LogitsProcessorList

import headscope as hs
from headscope.families import geometry
from headscope.speculate import Lookup, SparseToDense
from headscope.speculate.rounds import Rounds
from tests.attach.models import CACHE, MODELS, TEXT, picture_inputs, tokens
from tests.families.tiny import TINY
from tests.speculate.prompts import LENGTHS, SETTINGS, padded, scores_of, speculate

NEW = 13
PENALTIES: dict[str, Any] = {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2, "min_new_tokens": 6}
MANY = [*range(5, 97, 7)]  # end tokens, some of which come soon


@functools.cache
def plainly(name: str) -> list[list[int]]:
    """Give a model's plain answer of nine tokens."""
    model, inputs = MODELS[name]()
    return model.generate(**inputs, max_new_tokens=9).tolist()


@pytest.mark.parametrize("draft", SETTINGS)
@pytest.mark.parametrize("name", MODELS)
def test_every_model_answers_with_every_draft_as_it_does_without(name: str, draft: str) -> None:
    model, inputs = MODELS[name]()
    plain = plainly(name)
    decoder = speculate(model, draft, gamma=4)
    assert model.generate(**inputs, max_new_tokens=9, custom_generate=decoder).tolist() == plain
    assert decoder.report.emitted == 9


@pytest.mark.parametrize(("gamma", "rows"), [(1, 3), (2, 4), (5, 1), (5, 2), (15, 4), (15, 1), ("auto", 4)])
def test_padded_batches_at_every_gamma_with_penalties_and_end_tokens(gamma: int | str, rows: int) -> None:
    model, _ = MODELS["llama"]()
    inputs = padded(LENGTHS[:rows])
    for settings in (PENALTIES, {"eos_token_id": MANY}, {**PENALTIES, "eos_token_id": MANY}):
        plain = model.generate(**inputs, max_new_tokens=17, **settings).tolist()
        for draft in ("head_budget", "prompt_lookup"):
            decoder = speculate(model, draft, gamma)
            found = model.generate(**inputs, max_new_tokens=17, **settings, custom_generate=decoder)
            assert found.tolist() == plain


@pytest.mark.parametrize("name", ["mistral_sliding", "qwen2_sliding"])
def test_padded_batches_of_layers_with_a_window(name: str) -> None:
    model, _ = MODELS[name]()
    inputs, settings = padded(), {"eos_token_id": MANY, "repetition_penalty": 1.2}
    plain = model.generate(**inputs, max_new_tokens=17, **settings).tolist()
    for draft in SETTINGS:
        decoder = speculate(model, draft, 5)
        assert model.generate(**inputs, max_new_tokens=17, **settings, custom_generate=decoder).tolist() == plain


@pytest.mark.parametrize("name", ["qwen2_vl", "llava_onevision"])
def test_a_padded_batch_of_pictures(name: str) -> None:
    model, processor = TINY[name]()
    model.generation_config.eos_token_id = None
    singles = [picture_inputs(processor, question, seed) for seed, question in enumerate(["Read the text.", "What?"])]
    longest = max(single["input_ids"].shape[1] for single in singles)
    together = {
        key: torch.cat(
            [
                single[key]
                if single[key].ndim != 2 or single[key].shape != single["input_ids"].shape
                else torch.nn.functional.pad(single[key], (longest - single[key].shape[1], 0))
                for single in singles
            ]
        )
        for key in singles[0]
    }
    plain = model.generate(**together, max_new_tokens=NEW)
    for draft in ("text_guided", "head_budget"):
        decoder = speculate(model, draft, 3)
        assert model.generate(**together, max_new_tokens=NEW, custom_generate=decoder).tolist() == plain.tolist()


class Checked:
    """Holds every round of a generation to a fresh dense forward pass over prompt and emitted tokens."""

    def __init__(self, model: Any, inputs: dict[str, Any]) -> None:
        self.model, self.inputs, self.rounds = model, inputs, 0
        self.accepted: set[int] = set()

    def __call__(self, rounds: Rounds) -> None:
        self.rounds += 1
        state, prompt = rounds.state, self.inputs["input_ids"].shape[1]
        mask = self.inputs.get("attention_mask", torch.ones_like(self.inputs["input_ids"]))
        for row in range(state.rows):
            answer = state.ids[row, prompt : int(state.lengths[row]) - 1]
            fresh = self._fresh(row, answer)
            real = int(mask[row].sum())
            for index, whole in enumerate(state.whole):
                for buffer, dense in ((whole.key, fresh.layers[index].keys), (whole.value, fresh.layers[index].values)):
                    for kv in range(dense.shape[1]):
                        start, length = int(whole.starts[row, kv]), int(whole.lengths[row, kv])
                        assert length == real + len(answer)
                        held = buffer[start : start + length]
                        assert torch.allclose(held, dense[0, kv], atol=1e-5, rtol=1e-4)
                        if state.kept:
                            kept = state.kept[index]
                            own = kept.key if buffer is whole.key else kept.value
                            end = int(kept.starts[row, kv] + kept.lengths[row, kv])
                            assert torch.equal(own[end - len(answer) : end], held[length - len(answer) :])

    def _fresh(self, row: int, answer: torch.Tensor) -> Any:
        cache = DynamicCache()
        mask = self.inputs.get("attention_mask", torch.ones_like(self.inputs["input_ids"]))[row].bool()
        ids = torch.cat([self.inputs["input_ids"][row][mask], answer])[None]
        more = {key: value for key, value in self.inputs.items() if key not in ("input_ids", "attention_mask")}
        if "mm_token_type_ids" in more:
            more["mm_token_type_ids"] = torch.nn.functional.pad(more["mm_token_type_ids"], (0, len(answer)))
        with torch.no_grad():
            self.model(input_ids=ids, **more, **{CACHE: cache}, use_cache=True)
        return cache


@pytest.mark.parametrize("name", ["llama", "qwen2_vl", "llava_next"])
@pytest.mark.parametrize("gamma", [1, 4])
def test_after_every_round_the_dense_cache_is_that_of_a_fresh_prefill(
    name: str, gamma: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, inputs = MODELS[name]()
    inputs = padded(LENGTHS[:3]) if name == "llama" else inputs
    check, play = Checked(model, inputs), Rounds.play

    def checked(self: Rounds, *args: Any) -> Any:
        played = play(self, *args)
        check(self)
        return played

    monkeypatch.setattr(Rounds, "play", checked)
    model.generate(**inputs, max_new_tokens=9, custom_generate=speculate(model, "observation_window", gamma))
    assert check.rounds >= 2


@pytest.mark.parametrize("rejected", range(6))
def test_a_rollback_of_any_length_leaves_both_caches_as_they_should_be(
    rejected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, inputs = MODELS["llama"]()
    plain = model.generate(**inputs, max_new_tokens=20)

    def right_until(_model: Any) -> Lookup:
        def find(ids: torch.Tensor, lengths: torch.Tensor, gamma: int) -> torch.Tensor:
            at = int(lengths[0])
            proposed = torch.nn.functional.pad(plain[:, at : at + gamma], (0, gamma))[:, :gamma].clone()
            proposed[:, gamma - rejected :] = (proposed[:, gamma - rejected :] + 1) % 97
            return proposed

        return Lookup(find)

    check, play = Checked(model, inputs), Rounds.play
    stood = []

    def checked(self: Rounds, *args: Any) -> Any:
        played = play(self, *args)
        stood.append((played.gamma, played.accepted[0]))
        check(self)
        return played

    monkeypatch.setattr(Rounds, "play", checked)
    decoder = SparseToDense(right_until, gamma=5)
    assert model.generate(**inputs, max_new_tokens=20, custom_generate=decoder).tolist() == plain.tolist()
    full = [accepted for gamma, accepted in stood if gamma == 5]
    assert full and set(full[:-1]) <= {5 - rejected}
    assert decoder.report.lengths[5 - rejected] >= len(full) - 1


class Watching(LogitsProcessor):
    """A processor that remembers what it saw, and whose result depends on it."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self.seen.append(input_ids.tolist())
        shifted = scores.clone()
        shifted[:, (len(self.seen) * 7) % TEXT["vocab_size"]] += 3.0
        return shifted


@pytest.mark.parametrize("lengths", [(40,), (40, 23, 3)])
def test_a_processor_that_remembers_sees_what_plain_decoding_shows_it(lengths: tuple[int, ...]) -> None:
    model, _ = MODELS["llama"]()
    inputs = padded(lengths)
    for draft in ("head_budget", "prompt_lookup"):
        plain, own = Watching(), Watching()
        expected = model.generate(**inputs, max_new_tokens=NEW, logits_processor=LogitsProcessorList([plain]))
        found = model.generate(
            **inputs,
            max_new_tokens=NEW,
            logits_processor=LogitsProcessorList([own]),
            custom_generate=speculate(model, draft),
        )
        assert found.tolist() == expected.tolist()
        assert own.seen == plain.seen


def test_only_allowed_tokens_follow_a_prefix_as_in_plain_decoding() -> None:
    model, _ = MODELS["llama"]()
    inputs = padded((40, 23))

    def allowed(row: int, ids: torch.Tensor) -> list[int]:
        return list(range(3 + row, 97, 2 + len(ids) % 3))

    expected = model.generate(**inputs, max_new_tokens=NEW, prefix_allowed_tokens_fn=allowed)
    decoder = speculate(model)
    found = model.generate(**inputs, max_new_tokens=NEW, prefix_allowed_tokens_fn=allowed, custom_generate=decoder)
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("name", "refresh"), [("llama", 1), ("llama", "falling"), ("qwen2_vl", 2), ("mistral_sliding", 1)]
)
def test_choosing_the_drafts_tokens_anew_changes_no_token(name: str, refresh: int | str) -> None:
    model, inputs = MODELS[name]()
    inputs = padded(LENGTHS[:3]) if name == "llama" else inputs
    plain = model.generate(**inputs, max_new_tokens=15)
    for draft in ("head_budget", "text_guided"):
        decoder = speculate(model, draft, 3, refresh=refresh)
        assert model.generate(**inputs, max_new_tokens=15, custom_generate=decoder).tolist() == plain.tolist()
        assert decoder.report.refreshes > 0 or refresh == "falling"


@pytest.mark.parametrize("name", ["llama", "qwen2_vl", "mistral_sliding"])
def test_several_turns_on_the_callers_own_cache(name: str) -> None:
    model, inputs = MODELS[name]()
    more = tokens(5, seed=9)

    def turns(**own: Any) -> list[Any]:
        cache, ids, kept = DynamicCache(config=model.config), dict(inputs), []
        for _ in range(3):
            out = model.generate(**ids, max_new_tokens=7, **{CACHE: cache}, **own)
            kept += [out.tolist(), cache.get_seq_length()]
            ids = {"input_ids": torch.cat([out, more], dim=1)}
        return kept

    plain = turns()
    assert turns(custom_generate=speculate(model, "head_budget", 3)) == plain
    assert turns(custom_generate=speculate(model, "early_exit", 3)) == plain


@pytest.mark.parametrize("name", ["llama", "mistral_sliding"])
def test_a_callers_cache_holds_what_plain_generation_leaves_in_it(name: str) -> None:
    model, _ = MODELS[name]()
    inputs = padded(LENGTHS[:3])
    caches = []
    for own in ({}, {"custom_generate": speculate(model)}):
        out = model.generate(**inputs, max_new_tokens=NEW, eos_token_id=MANY, return_dict_in_generate=True, **own)
        caches.append(out[CACHE])
    plain, found = caches
    assert found.get_seq_length() == plain.get_seq_length()
    pads = (inputs["attention_mask"] == 0).sum(-1)
    for one, other in zip(plain.layers, found.layers, strict=True):
        assert one.keys.shape == other.keys.shape
        for row, pad in enumerate(pads.tolist()):
            first = max(0, pad - (plain.get_seq_length() - one.keys.shape[2]))
            assert torch.allclose(one.keys[row, :, first:], other.keys[row, :, first:], atol=1e-4)
            assert torch.allclose(one.values[row, :, first:], other.values[row, :, first:], atol=1e-4)


def test_a_second_prompt_finds_no_trace_of_the_first() -> None:
    model, inputs = MODELS["qwen2_vl"]()
    other = {"input_ids": tokens(30, seed=4)}
    plain = model.generate(**other, max_new_tokens=NEW).tolist()
    decoder = speculate(model)
    before = model.model.language_model.config._attn_implementation
    model.generate(**inputs, max_new_tokens=NEW, custom_generate=decoder)
    assert model.generate(**other, max_new_tokens=NEW, custom_generate=decoder).tolist() == plain
    assert model.generate(**other, max_new_tokens=NEW).tolist() == plain
    assert model.model.language_model.config._attn_implementation == before
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_embeddings_will_do_for_ids() -> None:
    model, inputs = MODELS["llama"]()
    embeds = {"inputs_embeds": model.get_input_embeddings()(inputs["input_ids"]).detach()}
    plain = model.generate(**embeds, max_new_tokens=NEW)
    assert model.generate(**embeds, max_new_tokens=NEW, custom_generate=speculate(model)).tolist() == plain.tolist()


def test_a_prompt_in_pieces() -> None:
    model, inputs = MODELS["llama"]()
    decoder = speculate(model)
    whole = model.generate(**inputs, max_new_tokens=NEW, custom_generate=decoder).tolist()
    kept = decoder.report.kept_bytes
    pieces = model.generate(**inputs, max_new_tokens=NEW, prefill_chunk_size=16, custom_generate=decoder).tolist()
    assert pieces == whole and decoder.report.kept_bytes == kept


def test_the_drafts_of_a_plan_keep_what_it_says() -> None:
    model, inputs = MODELS["llama"]()
    shape = geometry(model.config)
    for settings in ({"per_head": 10}, {"ratio_kept": 0.25}, {"budget": hs.Budget([[12, 8]] * 3, 4)}):
        more = {} if "budget" in settings else {"scores": scores_of(model), "window": 4}
        decoder = SparseToDense("head_budget", gamma=2, **settings, **more)
        model.generate(**inputs, max_new_tokens=NEW, custom_generate=decoder)
        numbers = decoder.report.kept_bytes // (2 * 4 * shape.head_dim)
        assert numbers == shape.layers * shape.kv_heads * (10 + 32)
