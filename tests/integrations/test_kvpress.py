"""The press: exact counts inside kvpress, on three families. `make test-kvpress` runs this in kvpress' environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("kvpress")

from kvpress import DuoAttentionPress, KVPressTextGenerationPipeline, LUKVPress, SnapKVPress
from kvpress.attention_patch import attention_patch
from transformers import AttentionInterface, AttentionMaskInterface, AutoTokenizer, DynamicCache
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

from headscope.budget import Budget
from headscope.budget.formats import export
from headscope.families import attention_modules
from headscope.integrations import kvpress as press_module
from headscope.integrations.kvpress import HeadBudgetPress, forget, importance, pooled
from tests.integrations.tiny import KV_HEADS, LAYERS, TINY, llama

WINDOW, PROMPT, NEW = 8, 40, 5
KEPT = torch.tensor([[8, 40], [21, 13], [9, 30]])
SEEN: list[tuple[int, list[int]]] = []  # per attention call of one query: its layer, the keys that each KV head sees
QUERIES: list[torch.Tensor] = []  # per attention call of several queries: these


def make(kept: Any = KEPT, window: int = WINDOW, prompt: int | None = PROMPT) -> Budget:
    return Budget(torch.as_tensor(kept), window=window, prompt=prompt, rule="uniform")


@pytest.fixture(params=TINY)
def tiny(request: pytest.FixtureRequest) -> tuple[Any, dict[str, Any]]:
    return TINY[request.param]()


@pytest.fixture(scope="module")
def tokenizer(reader_path: Path) -> Any:
    found = AutoTokenizer.from_pretrained(reader_path)
    found.chat_template, found.bos_token = None, found.pad_token
    return found


@attention_patch
def counting(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, dropout: float, scaling: float, **kwargs: Any
) -> tuple[Any, None]:
    """Attend eagerly, and count the keys that one query gives any weight."""
    group = query.shape[1] // key.shape[1]
    logits = query @ key.repeat_interleave(group, 1).mT * scaling
    if attention_mask is not None:
        logits = logits.masked_fill(~attention_mask, float("-inf"))
    elif query.shape[2] > 1:
        logits = logits.masked_fill(torch.ones_like(logits, dtype=torch.bool).triu(1), float("-inf"))
    weights = logits.softmax(-1)
    if query.shape[2] == 1:
        seen = (weights[0, :, 0] > 0).unflatten(0, (-1, group)).any(1)
        SEEN.append((module.layer_idx, seen.sum(-1).tolist()))
    else:
        QUERIES.append(query)
    return (weights @ value.repeat_interleave(group, 1)).transpose(1, 2), None


AttentionInterface.register("counting", counting)
AttentionMaskInterface.register("counting", ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])


def count(model: Any) -> None:
    """Let a model's text layers attend by `counting`, from zero."""
    model.set_attn_implementation({"text_config": "counting"} if hasattr(model.config, "text_config") else "counting")
    SEEN.clear()
    QUERIES.clear()


def generate(model: Any, inputs: dict[str, Any], new: int = NEW) -> list[int]:
    return model.generate(**inputs, max_new_tokens=new, do_sample=False)[0, -new:].tolist()


def masked(model: Any, heads: int = KV_HEADS) -> torch.Tensor:
    """The number of masked positions of each (layer, KV head)."""
    counts = torch.zeros(len(attention_modules(model)), heads, dtype=torch.int64)
    for layer, module in enumerate(attention_modules(model)):
        if module.masked_key_indices is not None:
            counts[layer] = torch.bincount(module.masked_key_indices[1], minlength=heads)
    return counts


def test_every_head_sees_exactly_its_budget_and_what_was_generated(tiny: Any) -> None:
    model, inputs = tiny
    count(model)
    with HeadBudgetPress(make())(model):
        generate(model, inputs)
    assert [(layer, (KEPT[layer] + step).tolist()) for step in range(1, NEW) for layer in range(LAYERS)] == SEEN
    assert masked(model).equal(PROMPT - KEPT)


@pytest.mark.parametrize("kept", [PROMPT, 3 * PROMPT])
def test_a_full_budget_gives_the_same_tokens_as_no_press(tiny: Any, kept: int) -> None:
    model, inputs = tiny
    plain = generate(model, inputs, 12)
    with HeadBudgetPress(make(torch.full((LAYERS, KV_HEADS), kept), prompt=None))(model):
        assert generate(model, inputs, 12) == plain


def test_the_last_queries_are_the_models_own(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = tiny
    found: list[torch.Tensor] = []

    def noting(queries: torch.Tensor, *rest: Any) -> torch.Tensor:
        found.append(queries)
        return importance(queries, *rest)

    monkeypatch.setattr(press_module, "importance", noting)
    count(model)
    with HeadBudgetPress(make(torch.full((LAYERS, KV_HEADS), 35), window=30))(model):  # most of the picture too
        generate(model, inputs, 1)
    assert len(found) == len(QUERIES) == LAYERS
    for queries, whole in zip(found, QUERIES, strict=True):
        torch.testing.assert_close(queries, whole[:, :, -30:])


def test_the_tokens_kept_are_those_that_the_last_queries_look_at(tiny: Any) -> None:
    model, inputs = tiny
    with HeadBudgetPress(make())(model):
        generate(model, inputs, 1)
    model.set_attn_implementation("eager")
    weights = model(**inputs, output_attentions=True).attentions
    for layer, module in enumerate(attention_modules(model)):
        rows = weights[layer][0, :, -WINDOW:, :-WINDOW].mean(1).unflatten(0, (KV_HEADS, -1)).mean(1)
        smooth = torch.nn.functional.avg_pool1d(rows, 5, stride=1, padding=2)
        _, heads, positions = module.masked_key_indices
        for kv in range(KV_HEADS):
            dropped = set(positions[heads == kv].tolist())
            best = set(smooth[kv].topk(int(KEPT[layer, kv]) - WINDOW).indices.tolist())
            assert dropped == set(range(PROMPT - WINDOW)) - best


def test_the_ranking_is_kvpress_own_snapkv_where_that_can_run() -> None:
    model, inputs = llama()
    seen = {}

    class Recording(SnapKVPress):
        def compress(self, module, hidden_states, keys, values, attentions, kwargs):  # type: ignore[no-untyped-def]
            queries = self.compute_window_attention(module, hidden_states, keys, WINDOW, kwargs["position_embeddings"])
            seen[module.layer_idx] = (self.score(module, hidden_states, keys, values, None, kwargs), queries)
            return keys, values

    with Recording(window_size=WINDOW)(model):
        generate(model, inputs, 1)
    with HeadBudgetPress(make())(model):
        generate(model, inputs, 1)
    for layer, module in enumerate(attention_modules(model)):
        scores = seen[layer][0][0, :, :-WINDOW]
        _, heads, positions = module.masked_key_indices
        for kv in range(KV_HEADS):
            worst = scores[kv].topk(PROMPT - int(KEPT[layer, kv]), largest=False).indices
            assert set(positions[heads == kv].tolist()) == set(worst.tolist())


def test_importance_is_the_mean_over_queries_and_group_of_causal_attention() -> None:
    queries, keys = torch.randn(1, 4, 3, 8), torch.randn(1, 2, 7, 8)
    expected = torch.zeros(2, 4)
    for head in range(4):
        for row in range(3):
            weights = (keys[0, head // 2, : 5 + row] @ queries[0, head, row] / 8**0.5).softmax(-1)
            expected[head // 2] += weights[:4] / 6
    torch.testing.assert_close(importance(queries, keys, 8**-0.5)[0], expected)
    assert pooled(torch.tensor([[[0.0, 5, 0, 0]]]), 5).tolist() == [[[1, 1, 1, 1]]]


def test_a_second_prompt_and_a_plain_run_find_no_trace_of_the_first(tiny: Any) -> None:
    model, first = tiny
    second = {"input_ids": torch.arange(3, 70)[None]}
    plain, press = generate(model, second), HeadBudgetPress(make(prompt=None))
    with press(model):
        alone = generate(model, second)
        lone_mask = masked(model)
        generate(model, first)
        assert generate(model, second) == alone
        assert masked(model).equal(lone_mask)
    assert masked(model).equal(67 - KEPT)
    assert generate(model, second) == plain
    assert masked(model).eq(0).all()


def test_forgetting_lets_a_whole_cache_go_on() -> None:
    model, inputs = llama()
    ids, step = inputs["input_ids"], torch.tensor([[7]])
    expected = model(torch.cat([ids, step], dim=1)).logits[0, -1]
    cache = DynamicCache()
    model(ids, past_key_values=cache)
    with HeadBudgetPress(make())(model):
        generate(model, {"input_ids": ids.flip(1)})
    forget(model)
    torch.testing.assert_close(model(step, past_key_values=cache).logits[0, -1], expected)


def test_a_prompt_no_longer_than_the_window_is_left_whole() -> None:
    model, _ = llama()
    short = {"input_ids": torch.arange(3, 3 + WINDOW)[None]}
    plain = generate(model, short)
    with HeadBudgetPress(make())(model):
        assert generate(model, short) == plain
    assert masked(model).eq(0).all()


def test_a_shorter_prompt_than_planned_takes_what_there_is() -> None:
    model, _ = llama()
    with HeadBudgetPress(make())(model):
        generate(model, {"input_ids": torch.arange(3, 23)[None]})
    assert masked(model).equal(20 - KEPT.clamp(max=20))


def test_kvpress_pipeline_answers_from_the_budget(tokenizer: Any, tmp_path: Path) -> None:
    model, _ = llama(len(tokenizer))
    pipe = KVPressTextGenerationPipeline(model=model, tokenizer=tokenizer)
    first, second = "Read the text. " * 8, "What is the KEY? " * 8
    length = tokenizer(first, add_special_tokens=False, return_tensors="pt").input_ids.shape[1] + 1
    assert length > KEPT.max()
    ask = {"question": "K", "max_new_tokens": 8}
    make(prompt=None).save(tmp_path / "budget.json")
    press = HeadBudgetPress(tmp_path / "budget.json")
    alone = pipe(second, press=press, **ask)
    pipe(first, press=press, **ask)
    assert masked(model).equal(length - KEPT)
    assert pipe(second, press=press, **ask) == alone
    full = HeadBudgetPress(make(torch.full((LAYERS, KV_HEADS), 500), prompt=None))
    assert pipe(first, press=full, **ask) == pipe(first, **ask)


@pytest.mark.parametrize("shape", [(LAYERS + 1, KV_HEADS), (LAYERS, 2 * KV_HEADS)])
def test_a_budget_of_another_geometry_is_refused(tiny: Any, shape: tuple[int, int]) -> None:
    found = f"found {shape[0]} layers x {shape[1]} KV heads"
    with (
        pytest.raises(ValueError, match=f"`budget`: expected 3 layers x 2 KV heads, {found}"),
        HeadBudgetPress(make(torch.full(shape, 20)))(tiny[0]),
    ):
        pass


def test_eager_attention_is_refused() -> None:
    model, _ = llama()
    model.set_attn_implementation("eager")
    with (
        pytest.raises(ValueError, match="`attn_implementation` must be sdpa .* got eager"),
        HeadBudgetPress(make())(model),
    ):
        pass


def test_a_batch_is_refused() -> None:
    model, inputs = llama()
    with pytest.raises(ValueError, match="`batch` must be 1 .* got 2"), HeadBudgetPress(make())(model):
        model(inputs["input_ids"].repeat(2, 1))


@pytest.mark.parametrize("pool", [0, 4])
def test_an_even_pool_is_refused(pool: int) -> None:
    with pytest.raises(ValueError, match=f"`pool` must be an odd number of at least 1, got {pool}"):
        HeadBudgetPress(make(), pool=pool)


def test_kvpress_own_lukv_press_keeps_an_exported_budget_exactly(tmp_path: Path) -> None:
    model, inputs = llama()
    kept = [[8, 40], [21, 17], [9, 25]]  # half of the prompt: the row of 50 %
    export(make(kept), tmp_path / "budget.npy", "lukv")
    press = LUKVPress(SnapKVPress(window_size=WINDOW), compression_ratio=0.5, sink=0, window=WINDOW)
    press._budget_curves = np.load(tmp_path / "budget.npy")
    with press(model):
        generate(model, inputs)
    assert masked(model).equal(PROMPT - torch.tensor(kept))


def test_kvpress_own_duoattention_press_streams_the_heads_with_the_least(tmp_path: Path) -> None:
    model, inputs = llama()
    export(make(), tmp_path, "duoattention")

    class Exported(DuoAttentionPress):
        @staticmethod
        def load_attention_pattern(model):  # type: ignore[no-untyped-def]
            return 0, WINDOW, np.loadtxt(tmp_path / "full_attention_heads.tsv", delimiter="\t")

    with Exported(head_compression_ratio=0.5)(model):
        generate(model, inputs)
    assert masked(model).equal(torch.tensor([[32, 0], [0, 32], [32, 0]]))
