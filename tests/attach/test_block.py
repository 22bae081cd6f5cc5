"""`compress`: the same tokens at a full budget, the masked model's logits at any, and no trace afterwards."""

from __future__ import annotations

import copy
import functools
import threading
from typing import Any

import pytest
import torch
from transformers import DynamicCache, StaticCache

from headscope.attach import compress
from headscope.budget import Budget
from headscope.cache import RaggedCache
from headscope.families import geometry, language_model
from headscope.scores import HeadScores
from headscope.select import observation_window
from tests.attach.models import CACHE, MODELS, picture_inputs, text_model, tokens
from tests.attach.reference import kept_tokens, masked_logits
from tests.families.tiny import TINY

NEW = 14


def budget_of(model: Any, kept: int | tuple[int, int], window: int = 4, seed: int = 0) -> Budget:
    """Give a budget: a number for every head, or random ones between two."""
    shape = geometry(model.config)
    low, high = kept if isinstance(kept, tuple) else (kept, kept)
    chance = torch.Generator().manual_seed(seed)
    return Budget(torch.randint(low, high + 1, (shape.layers, shape.kv_heads), generator=chance), window)


def answers(model: Any, inputs: dict[str, Any], **more: Any) -> Any:
    """Generate greedily, with logits and the cache."""
    return model.generate(**inputs, max_new_tokens=NEW, return_dict_in_generate=True, output_logits=True, **more)


@pytest.mark.parametrize("name", MODELS)
def test_at_a_full_budget_the_tokens_are_those_of_plain_generation(name: str) -> None:
    model, inputs = MODELS[name]()
    plain = model.generate(**inputs, max_new_tokens=NEW)
    with compress(model, budget_of(model, 1000)):
        assert model.generate(**inputs, max_new_tokens=NEW).tolist() == plain.tolist()
    assert model.generate(**inputs, max_new_tokens=NEW).tolist() == plain.tolist()


@pytest.mark.parametrize("name", MODELS)
def test_at_any_budget_the_logits_are_those_of_a_dense_model_with_masked_heads(name: str) -> None:
    model, inputs = MODELS[name]()
    with compress(model, budget_of(model, (4, 20))):
        out = answers(model, inputs)
    kept = [kept_tokens(layer) for layer in out[CACHE].layers]
    assert not all(chosen.all() for chosen in kept)
    prompt = inputs["input_ids"].shape[1]
    expected = masked_logits(model, inputs, out.sequences[:, prompt:-1], kept)
    found = torch.stack(out.logits, dim=1)
    assert torch.allclose(found, expected, atol=2e-4, rtol=1e-4)
    assert found.argmax(-1).tolist() == expected.argmax(-1).tolist()


def test_a_budget_is_kept_head_by_head_and_what_is_generated_comes_on_top() -> None:
    model, inputs = MODELS["llama"]()
    budget = budget_of(model, (4, 20))
    with compress(model, budget):
        cache = answers(model, inputs)[CACHE]
    assert isinstance(cache, RaggedCache)
    for layer, kept in zip(cache.lengths, budget.kept, strict=True):
        assert layer.tolist() == [(kept + NEW - 1).tolist()]
    assert cache.get_seq_length() == 40 + NEW - 1


def test_a_small_budget_takes_fewer_bytes_than_the_full_cache() -> None:
    model = text_model("llama")
    with compress(model, budget_of(model, 16)):
        cache = answers(model, {"input_ids": tokens(400)})[CACHE]
    assert cache.dense_bytes == 3 * 2 * 2 * 16 * 4 * (400 + NEW - 1)
    assert cache.kv_bytes < cache.dense_bytes / 6
    assert cache.kv_bytes == sum(layer.segments.key.nbytes + layer.segments.value.nbytes for layer in cache.layers)


@pytest.mark.parametrize("name", ["llama", "mistral_sliding"])
def test_each_layer_is_compressed_before_the_next_one_runs(name: str) -> None:
    model, inputs = text_model(name), {"input_ids": tokens(60)}
    seen: list[list[bool]] = []
    cache = RaggedCache()
    for module in model.model.layers:
        module.register_forward_pre_hook(lambda *_: seen.append([layer.compressed for layer in cache.layers]))
    with compress(model, budget_of(model, 8)):
        model.generate(**inputs, max_new_tokens=1, **{CACHE: cache})
    assert seen == [[False] * 3, [True, False, False], [True, True, False]]


def test_sampling_draws_the_same_at_a_full_budget() -> None:
    model, inputs = MODELS["qwen2"]()
    drawn = []
    for _ in range(2):
        torch.manual_seed(3)
        drawn.append(model.generate(**inputs, max_new_tokens=NEW, do_sample=True, repetition_penalty=1.2).tolist())
        block = compress(model, budget_of(model, 1000))
        with block:
            torch.manual_seed(3)
            sampled = model.generate(**inputs, max_new_tokens=NEW, do_sample=True, repetition_penalty=1.2)
            drawn.append(sampled.tolist())
    assert all(each == drawn[0] for each in drawn)


@pytest.mark.parametrize("name", ["qwen2_vl", "llava_next", "mistral_sliding"])
@pytest.mark.parametrize("kind", [DynamicCache, RaggedCache])
def test_several_turns_on_the_callers_own_cache_equal_plain_ones_at_a_full_budget(name: str, kind: Any) -> None:
    model, inputs = MODELS[name]()
    vocabulary = model.config.get_text_config().vocab_size
    more = torch.randint(10, vocabulary - 10, (1, 5), generator=torch.Generator().manual_seed(1))

    def turns(cache: Any) -> list[int]:
        first = model.generate(**inputs, max_new_tokens=6, **{CACHE: cache})
        longer = torch.cat([first, more], dim=1)
        return model.generate(input_ids=longer, max_new_tokens=6, **{CACHE: cache})[0].tolist()

    plain = turns(DynamicCache(config=model.config))
    with compress(model, budget_of(model, 1000)):
        assert turns(kind()) == plain


def test_later_turns_see_what_was_kept_of_the_first_and_all_of_themselves() -> None:
    model, inputs = MODELS["qwen3"]()
    cache = RaggedCache()
    with compress(model, budget_of(model, (4, 20))):
        first = model.generate(**inputs, max_new_tokens=5, **{CACHE: cache})
        kept = [kept_tokens(layer) for layer in cache.layers]
        turn = torch.cat([first, tokens(7, seed=5)], dim=1)
        out = answers(model, {"input_ids": turn}, **{CACHE: cache})
    expected = masked_logits(model, inputs, out.sequences[:, 40:-1], kept)[:, -NEW:]
    assert torch.allclose(torch.stack(out.logits, dim=1), expected, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["llama", "mistral_sliding", "qwen2_sliding"])
@pytest.mark.parametrize("select", ["observation_window", "sinks_and_recent", "random", "text_guided"])
def test_a_padded_batch_gives_what_its_rows_give_alone(name: str, select: str) -> None:
    model, _ = MODELS[name]()
    rows = [tokens(length, seed=length)[0] for length in (40, 23, 3)]
    padded = torch.stack([torch.cat([torch.zeros(40 - len(row), dtype=torch.long), row]) for row in rows])
    mask = torch.stack([torch.cat([torch.zeros(40 - len(row)), torch.ones(len(row))]) for row in rows]).long()
    with compress(model, budget_of(model, (4, 16)), select=select):
        batch = answers(model, {"input_ids": padded, "attention_mask": mask})
        for row, ids in enumerate(rows):
            alone = answers(model, {"input_ids": ids[None]})
            assert batch.sequences[row, 40:].tolist() == alone.sequences[0, len(ids) :].tolist()
            for together, single in zip(batch[CACHE].lengths, alone[CACHE].lengths, strict=True):
                assert together[row].tolist() == single[0].tolist()
            found = torch.stack(batch.logits, dim=1)[row]
            assert torch.allclose(found, torch.stack(alone.logits, dim=1)[0], atol=1e-4)


@pytest.mark.parametrize("name", ["qwen2_vl", "llava", "llava_onevision"])
def test_a_padded_batch_of_pictures_gives_what_its_rows_give_alone(name: str) -> None:
    model, processor = TINY[name]()
    model.generation_config.eos_token_id = None
    questions = ["Read the text please.", "What?"]
    singles = [picture_inputs(processor, question, seed) for seed, question in enumerate(questions)]
    longest = max(single["input_ids"].shape[1] for single in singles)
    together = {name: torch.cat([single[name] for single in singles]) for name in singles[0] if name.startswith("p")}
    together |= {
        name: torch.cat(
            [torch.nn.functional.pad(single[name], (longest - single[name].shape[1], 0)) for single in singles]
        )
        for name in ("input_ids", "attention_mask", "mm_token_type_ids")
        if name in singles[0]
    }
    for name in ("image_grid_thw", "image_sizes", "batch_num_images"):
        if name in singles[0]:
            together[name] = torch.cat([single[name] for single in singles])
    with compress(model, budget_of(model, (4, 12)), select="text_guided"):
        batch = answers(model, together)
        for row, single in enumerate(singles):
            alone = answers(model, single)
            assert batch.sequences[row, -NEW:].tolist() == alone.sequences[0, -NEW:].tolist()


def test_padding_between_turns_is_not_held() -> None:
    model, _ = MODELS["llama"]()
    first = torch.cat([tokens(12, seed=1), tokens(12, seed=2)])
    second = torch.cat([tokens(6, seed=3), torch.cat([torch.zeros(1, 3, dtype=torch.long), tokens(3, seed=4)], dim=1)])
    mask = torch.ones(2, 18, dtype=torch.long)
    mask[1, 12:15] = 0
    with compress(model, budget_of(model, 6)), torch.no_grad():
        cache = RaggedCache()
        model.generate(first, max_new_tokens=1, **{CACHE: cache})
        places = mask.cumsum(-1)[:, 12:] - 1
        together = model(second, attention_mask=mask, position_ids=places, **{CACHE: cache}).logits[:, -1]
        assert [length.tolist() for length in cache.lengths] == [[[12, 12], [9, 9]]] * 3
        for row, ids in ((0, second[:1]), (1, second[1:, 3:])):
            own = RaggedCache()
            model.generate(first[row : row + 1], max_new_tokens=1, **{CACHE: own})
            assert torch.allclose(model(ids, **{CACHE: own}).logits[0, -1], together[row], atol=1e-4)
        cache.crop(-5)
        assert [length.tolist() for length in cache.lengths] == [[[7, 7], [6, 6]]] * 3


OLD = pytest.mark.skipif(CACHE != "cache", reason="transformers 5.17 itself cannot feed M-RoPE prompts in pieces")


@pytest.mark.parametrize("name", ["llama", pytest.param("qwen2_vl", marks=OLD), "mistral_sliding"])
def test_a_prompt_in_pieces_keeps_what_it_keeps_in_one(name: str) -> None:
    model, inputs = MODELS[name]()
    ids = inputs["input_ids"] if name != "qwen2_vl" else tokens(40)
    with compress(model, budget_of(model, (4, 12))), torch.no_grad():
        whole = answers(model, {"input_ids": ids})
        pieces = answers(model, {"input_ids": ids}, prefill_chunk_size=16)
        cache = RaggedCache()
        for piece in ids.split([16, 16, ids.shape[1] - 32], dim=1):
            logits = model(piece, **{CACHE: cache}).logits[:, -1]
        steps = []
        for _ in range(NEW):
            steps.append(int(logits.argmax(-1)))
            logits = model(torch.tensor([steps[-1:]]), **{CACHE: cache}).logits[:, -1]
    assert pieces.sequences.tolist() == whole.sequences.tolist()
    assert steps == whole.sequences[0, ids.shape[1] :].tolist()
    for layer, one in zip(cache.layers, whole[CACHE].layers, strict=True):
        assert kept_tokens(layer).tolist() == kept_tokens(one).tolist()


def test_several_tokens_after_the_prompt_are_never_taken_for_one() -> None:
    model, inputs = MODELS["llama"]()
    five = tokens(5, seed=9)
    with compress(model, budget_of(model, 8)), torch.no_grad():
        one, many = RaggedCache(), RaggedCache()
        for cache in (one, many):
            model.generate(**inputs, max_new_tokens=1, **{CACHE: cache})
        each = [model(five[:, at : at + 1], **{CACHE: one}).logits[:, -1] for at in range(5)]
        together = model(five, **{CACHE: many}).logits
        assert torch.allclose(torch.stack(each, dim=1), together, atol=1e-4)
        assert [length.tolist() for length in many.lengths] == [[[13, 13]]] * 3


def test_assisted_generation_gives_the_same_tokens() -> None:
    model = text_model("llama")
    inputs = {"input_ids": tokens(10).repeat(1, 4)}
    with compress(model, budget_of(model, 1000)):
        plain = model.generate(**inputs, max_new_tokens=NEW)
        assert model.generate(**inputs, max_new_tokens=NEW, prompt_lookup_num_tokens=4).tolist() == plain.tolist()


def test_scores_are_planned_anew_for_each_prompt() -> None:
    model = text_model("llama")
    scores = HeadScores.from_values(torch.rand(3, 4, generator=torch.Generator().manual_seed(0)), kv_heads=2)
    with compress(model, scores=scores, per_head=10, window=4):
        for length, total in ((40, 60), (8, 48), (3, 18)):
            cache = answers(model, {"input_ids": tokens(length)})[CACHE]
            assert sum(int(layer.sum()) for layer in cache.lengths) == total + 6 * (NEW - 1)


def test_adaptive_budgets_follow_the_prompt_and_are_exact_in_each_layer() -> None:
    model = text_model("llama")
    scores = HeadScores.from_values(torch.ones(3, 4), kv_heads=2)
    found = []
    with compress(model, scores=scores, per_head=10, window=4, rule="adaptive", floor=0.0):
        for seed in range(4):
            cache = answers(model, {"input_ids": tokens(40, seed=seed)})[CACHE]
            found.append([layer.tolist() for layer in cache.lengths])
            assert [int(layer.sum()) - 2 * (NEW - 1) for layer in cache.lengths] == [20, 20, 20]
    assert len({str(each) for each in found}) > 1


@pytest.mark.parametrize("rule", ["sparsemm", "adaptive"])
def test_a_ratio_of_a_short_prompt_keeps_at_least_the_window(rule: str) -> None:
    model = text_model("llama")
    scores = HeadScores.from_values(torch.ones(3, 4), kv_heads=2)
    with compress(model, scores=scores, ratio_kept=0.25, window=4, rule=rule):
        for length, kept in ((40, 10), (10, 4), (3, 3)):
            cache = answers(model, {"input_ids": tokens(length)})[CACHE]
            assert [int(layer.sum()) - 2 * (NEW - 1) for layer in cache.lengths] == [2 * kept] * 3


def test_memory_with_a_context_plans_for_each_prompt() -> None:
    model = text_model("llama")
    scores = HeadScores.from_values(torch.ones(3, 4), kv_heads=2)
    memory = {"bytes": 6 * 30 * 16 * 2 * 4, "context": 60, "dtype": "float32", "head_dim": 16}
    with compress(model, scores=scores, window=4, rule="uniform", **memory):
        cache = answers(model, {"input_ids": tokens(40)})[CACHE]
        assert [int(layer.sum()) - 2 * (NEW - 1) for layer in cache.lengths] == [20, 20, 20]


def test_embeddings_will_do_for_ids() -> None:
    model, inputs = MODELS["llama"]()
    embeds = model.get_input_embeddings()(inputs["input_ids"]).detach()
    with compress(model, budget_of(model, 8)):
        expected = answers(model, inputs).sequences[:, 40:]
        assert answers(model, {"inputs_embeds": embeds}).sequences.tolist() == expected.tolist()
        assert model.generate(inputs["input_ids"], max_new_tokens=NEW)[:, 40:].tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_caches_hold_half_precision(dtype: torch.dtype) -> None:
    model = text_model("llama").to(dtype)
    with compress(model, budget_of(model, 8)):
        cache = answers(model, {"input_ids": tokens(40)})[CACHE]
    assert cache.layers[0].segments.key.dtype == dtype


def test_a_streamer_in_another_thread_gets_the_same_tokens() -> None:
    model, inputs = MODELS["llama"]()
    seen: list[int] = []

    class Streamer:
        def put(self, value: torch.Tensor) -> None:
            seen.extend(value.flatten().tolist())

        def end(self) -> None:
            seen.append(-1)

    with compress(model, budget_of(model, 8)):
        expected = answers(model, inputs).sequences[0].tolist()
        thread = threading.Thread(
            target=model.generate, kwargs={**inputs, "max_new_tokens": NEW, "streamer": Streamer()}
        )
        thread.start()
        thread.join()
    assert seen == [*expected, -1]


def test_without_a_cache_nothing_is_compressed() -> None:
    model, inputs = MODELS["llama"]()
    plain = model.generate(**inputs, max_new_tokens=4)
    with compress(model, budget_of(model, 4)):
        assert model.generate(**inputs, max_new_tokens=4, use_cache=False).tolist() == plain.tolist()
        assert CACHE not in model(**inputs, use_cache=False)


def test_two_sequences_on_one_model_never_see_each_other() -> None:
    model, processor = TINY["qwen2_vl"]()
    model.generation_config.eos_token_id = None
    prompts = [picture_inputs(processor), {"input_ids": tokens(20)}]
    more = tokens(4, seed=8)

    def turn(cache: Any, prompt: dict[str, Any], before: torch.Tensor | None) -> torch.Tensor:
        if before is None:
            return model.generate(**prompt, max_new_tokens=4, **{CACHE: cache})
        return model.generate(input_ids=torch.cat([before, more], dim=1), max_new_tokens=4, **{CACHE: cache})

    with compress(model, budget_of(model, 8)):
        alone = []
        for prompt in prompts:
            cache, before = RaggedCache(), None
            for _ in range(3):
                before = turn(cache, prompt, before)
            alone.append(before)
        caches: list[Any] = [RaggedCache(), RaggedCache()]
        befores: list[Any] = [None, None]
        for _ in range(3):
            befores = [turn(*each) for each in zip(caches, prompts, befores, strict=True)]
    assert [each.tolist() for each in befores] == [each.tolist() for each in alone]


def test_leaving_restores_the_model_also_after_an_error() -> None:
    model, inputs = MODELS["qwen2_vl"]()
    model.model.rope_deltas = None
    text = {"input_ids": tokens(20)}
    plain = [model.generate(**each, max_new_tokens=4).tolist() for each in (inputs, text)]
    model.model.rope_deltas = None
    before = {name: copy.copy(vars(module)) for name, module in model.named_modules()}
    config = copy.deepcopy(model.config.to_dict())
    for select in ("observation_window", lambda *_, **__: 1 / 0):
        try:
            with compress(model, budget_of(model, 8), select=select):
                for each in (inputs, text):
                    model.generate(**each, max_new_tokens=4)
        except ZeroDivisionError:
            pass
        for name, module in model.named_modules():
            now = vars(module)
            assert now.keys() == before[name].keys()
            assert all(not value for key, value in now.items() if key.endswith("_hooks"))
        assert model.config.to_dict() == config and language_model(model).config._attn_implementation == "sdpa"
        assert model.model.rope_deltas is None and "generate" not in vars(model)
    assert [model.generate(**each, max_new_tokens=4).tolist() for each in (inputs, text)] == plain


def test_a_second_prompt_a_shorter_one_and_an_error_between_leave_no_trace() -> None:
    model, inputs = MODELS["qwen2_5_vl"]()
    prompts = [inputs, {"input_ids": tokens(9)}, {"input_ids": tokens(3)}, inputs]

    def run(prompt: dict[str, Any]) -> Any:
        return model.generate(**prompt, max_new_tokens=5).tolist()

    alone = []
    for prompt in prompts:
        with compress(model, budget_of(model, 8)):
            alone.append(run(prompt))
    with compress(model, budget_of(model, 8)):
        found = []
        for prompt in prompts:
            found.append(run(prompt))
            with pytest.raises(ValueError, match="num_beams"):
                model.generate(**prompt, num_beams=2)
            with pytest.raises(RuntimeError, match="stop here"):
                model.generate(**prompt, max_new_tokens=5, stopping_criteria=[_failing])
    assert found == alone


def _failing(*_: Any, **__: Any) -> Any:
    raise RuntimeError("stop here")


def test_the_selection_may_be_a_function_with_settings() -> None:
    model, inputs = MODELS["llama"]()
    found = []
    for select in ("observation_window", functools.partial(observation_window, pool=1, sinks=2, window=4)):
        with compress(model, budget_of(model, 8), select=select):
            found.append([kept_tokens(layer) for layer in answers(model, inputs)[CACHE].layers])
    assert found[1][0][0, :, :2].all() and not torch.equal(found[0][0], found[1][0])


def test_the_dense_prompt_is_copied_to_the_cpu_when_asked() -> None:
    model, inputs = MODELS["llama"]()
    with compress(model, budget_of(model, 8), offload=True):
        cache = answers(model, inputs)[CACHE]
    layer = cache.layers[1]
    key, _ = layer.dense_copy
    assert key.shape == (1, 2, 40, 16)
    start, places = int(layer.segments.starts[0, 1]), layer.tokens.positions[8:16].long()
    assert torch.equal(layer.segments.key[start : start + 8], key[0, 1, places])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_beams": 2}, "`num_beams` must be 1 inside `hs.compress`, got 2"),
        ({"num_return_sequences": 2, "do_sample": True}, "`num_return_sequences` must be 1"),
        ({"cache_implementation": "static"}, "`cache_implementation` must be left out"),
    ],
)
def test_what_a_ragged_cache_cannot_do_is_refused_before_anything_runs(settings: Any, message: str) -> None:
    model, inputs = text_model("llama"), {"input_ids": tokens(10)}
    ran: list[int] = []
    model.register_forward_pre_hook(lambda *_: ran.append(1))
    with compress(model, budget_of(model, 8)), pytest.raises(ValueError, match=message):
        model.generate(**inputs, **settings)
    assert not ran


def test_caches_that_cannot_be_ragged_are_refused() -> None:
    model, inputs = MODELS["llama"]()
    full = DynamicCache(config=model.config)
    model.generate(**inputs, max_new_tokens=2, **{CACHE: full})
    with compress(model, budget_of(model, 8)):
        with pytest.raises(ValueError, match="must be empty when it first comes into `hs.compress`"):
            model.generate(**inputs, max_new_tokens=2, **{CACHE: full})
        with pytest.raises(ValueError, match="must be a DynamicCache or hs.RaggedCache"):
            static = StaticCache(config=model.config, max_cache_len=64)
            model.generate(**inputs, max_new_tokens=2, **{CACHE: static})
        with pytest.raises(ValueError, match="the cache holds 1 sequences, got 2"):
            own = RaggedCache()
            model.generate(**inputs, max_new_tokens=2, **{CACHE: own})
            model(tokens(3, rows=2), **{CACHE: own})
    with pytest.raises(ValueError, match="only inside `hs.compress`"):
        model(tokens(1), **{CACHE: own})
    with pytest.raises(ValueError, match="only inside `hs.compress`"):
        model(tokens(4), **{CACHE: RaggedCache()})


def test_padding_on_the_right_is_refused() -> None:
    model, _ = MODELS["llama"]()
    mask = torch.ones(2, 10, dtype=torch.long)
    mask[1, 8:] = 0
    with compress(model, budget_of(model, 8)), pytest.raises(ValueError, match="must pad prompts on the left"):
        model(tokens(10, rows=2), attention_mask=mask)


def test_arguments_that_do_not_fit_are_refused_when_the_block_is_made() -> None:
    model, _ = MODELS["llama"]()
    budget = budget_of(model, 8)
    scores = HeadScores.from_values(torch.ones(3, 4), kv_heads=2)
    with pytest.raises(ValueError, match="`select` must keep the budget's window of 4 tokens, got .* window 8"):
        compress(model, budget, select=functools.partial(observation_window, window=8))
    with pytest.raises(ValueError, match="did you mean observation_window"):
        compress(model, budget, select="observation_windows")
    with pytest.raises(ValueError, match="expected 3 layers x 2 KV heads, found 2 layers x 2 KV heads"):
        compress(model, Budget(budget.kept[:2], 4))
    with pytest.raises(ValueError, match="`budget` and `per_head` exclude each other"):
        compress(model, budget, per_head=3)
    with pytest.raises(ValueError, match="`budget` is required"):
        compress(model)
    with pytest.raises(ValueError, match="`window` must be at most `per_head`"):
        compress(model, scores=scores, per_head=10)
    with pytest.raises(ValueError, match="these scores are another model's"):
        compress(model, scores=HeadScores.from_values(torch.ones(2, 4)), per_head=40)
    with compress(model, budget), pytest.raises(ValueError, match="inside a `hs.compress` block already"):
        compress(model, budget).__enter__()


def test_a_budget_file_will_do(tmp_path: Any) -> None:
    model, inputs = MODELS["llama"]()
    budget_of(model, 1000).save(tmp_path / "budget.json")
    plain = model.generate(**inputs, max_new_tokens=NEW)
    with compress(model, tmp_path / "budget.json"):
        assert model.generate(**inputs, max_new_tokens=NEW).tolist() == plain.tolist()
