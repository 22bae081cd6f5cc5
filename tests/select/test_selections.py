"""Selections: as many tokens as asked, the window among them, the same as a plain formula says."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from headscope.select import (
    SELECTIONS,
    Prompt,
    find_selection,
    importances,
    observation_window,
    observe,
    random,
    sinks_and_recent,
    text_guided,
)


def prompt_of(tokens: int = 30, rows: int = 1, heads: int = 4, kvs: int = 2, seed: int = 0, **more: Any) -> Prompt:
    """Make a prompt of random queries and keys, all queries at hand."""
    chance = torch.Generator().manual_seed(seed)
    query, key = (torch.randn(rows, number, tokens, 8, generator=chance) for number in (heads, kvs))
    return Prompt(query, key, 8**-0.5, **more)


def left(tokens: int, *lengths: int) -> Tensor:
    """Say which tokens are no padding."""
    return torch.arange(tokens) >= tokens - torch.tensor(lengths)[:, None]


def attention(prompt: Prompt) -> Tensor:
    """The plain formula: causal softmax, [row, head, query, token], mean over each group."""
    group = prompt.query.shape[1] // prompt.kv_heads
    logits = prompt.query @ prompt.key.repeat_interleave(group, 1).transpose(2, 3) * prompt.scaling
    hidden = torch.ones(prompt.tokens, prompt.tokens).triu(1).bool() | ~prompt.there[:, None, None]
    rows = logits.masked_fill(hidden, torch.finfo(torch.float32).min).softmax(-1)
    return rows.unflatten(1, (-1, group)).mean(2)


@given(
    st.sampled_from(sorted(SELECTIONS)),
    st.lists(st.integers(1, 24), min_size=1, max_size=3),
    st.integers(1, 8),
    st.integers(0, 1000),
)
@settings(max_examples=60, deadline=None)
def test_every_selection_keeps_the_window_and_exactly_as_many_as_asked_and_no_padding(
    name: str, lengths: list[int], window: int, seed: int
) -> None:
    tokens = max(lengths)
    chance = torch.Generator().manual_seed(seed)
    visual = torch.rand(len(lengths), tokens, generator=chance) < 0.5
    prompt = prompt_of(tokens, len(lengths), seed=seed, valid=left(tokens, *lengths), visual=visual)
    most = torch.tensor(lengths)[:, None].expand(-1, 2)
    least = most.clamp_max(window)
    kept = least + (torch.rand(len(lengths), 2, generator=chance) * (most - least + 1)).long()
    chosen = SELECTIONS[name](prompt, kept, window=window)
    assert chosen.dtype == torch.bool and chosen.shape == (len(lengths), 2, tokens)
    assert chosen.sum(-1).tolist() == kept.tolist()
    assert not (chosen & ~prompt.there[:, None]).any()
    assert (chosen | ~prompt.last(window)[:, None]).all()


@pytest.mark.parametrize("name", SELECTIONS)
def test_a_padded_row_keeps_what_it_keeps_alone(name: str) -> None:
    alone, longer = prompt_of(17, seed=1), prompt_of(30, seed=2)
    pad = functools.partial(torch.nn.functional.pad, pad=(0, 0, 13, 0), value=7.0)
    query, key = (torch.cat([getattr(longer, part), pad(getattr(alone, part))]) for part in ("query", "key"))
    together = Prompt(query, key, alone.scaling, left(30, 30, 17))
    kept = torch.tensor([[20, 9], [11, 6]])
    chosen = SELECTIONS[name](together, kept, window=4)
    assert chosen[0].tolist() == SELECTIONS[name](longer, kept[:1], window=4)[0].tolist()
    assert chosen[1, :, 13:].tolist() == SELECTIONS[name](alone, kept[1:], window=4)[0].tolist()


def test_the_observation_window_averages_over_window_and_group_then_pools() -> None:
    prompt = prompt_of(40)
    before = attention(prompt)[:, :, -6:].mean(2)[..., :-6]
    pooled = torch.stack([torch.nn.functional.pad(before, (2, 2))[..., at : at + 34] for at in range(5)]).mean(0)
    chosen = observation_window(prompt, torch.tensor([[16, 9]]), window=6, pool=5)
    for kv, many in enumerate((10, 3)):
        expected = sorted([*pooled[0, kv].topk(many).indices.tolist(), *range(34, 40)])
        assert chosen[0, kv].nonzero()[:, 0].tolist() == expected


def test_importances_are_the_pooled_attention_and_nothing_in_the_window() -> None:
    found = importances(prompt_of(12), window=5, pool=3)
    assert found.dtype == torch.float32 and not found[..., -5:].any() and (found[..., :-5] > 0).all()


def test_sinks_are_kept_before_others_and_after_the_window() -> None:
    prompt = prompt_of(30, valid=left(30, 25))
    for selection in (observation_window, sinks_and_recent):
        chosen = selection(prompt, torch.tensor([[9, 6]]), window=5, sinks=3)
        assert chosen[0, 0, 5:8].all() and chosen[0, 1, 5:8].sum() == 1


def test_sinks_and_recent_are_a_stream() -> None:
    chosen = sinks_and_recent(prompt_of(20), torch.tensor([[10, 7]]), window=2, sinks=4)
    assert chosen[0, 0].nonzero()[:, 0].tolist() == [0, 1, 2, 3, 14, 15, 16, 17, 18, 19]
    assert chosen[0, 1].nonzero()[:, 0].tolist() == [0, 1, 2, 3, 17, 18, 19]


def test_text_guided_keeps_all_text_and_the_cells_that_the_question_looks_at() -> None:
    visual = torch.zeros(1, 40, dtype=torch.bool)
    visual[:, 3:15] = visual[:, 18:30] = True
    prompt = prompt_of(40, visual=visual)
    chosen = text_guided(prompt, torch.tensor([[22, 17]]), window=4)
    assert (chosen | visual[:, None]).all()
    looked = attention(prompt)[:, :, 30:].mean(2).masked_fill(~visual[:, None], -1)
    for kv, many in enumerate((6, 1)):
        cells = chosen[0, kv] & visual[0]
        assert cells.nonzero()[:, 0].tolist() == sorted(looked[0, kv].topk(many).indices.tolist())


def test_text_guided_serves_a_prompt_without_pictures_and_one_that_ends_in_a_picture() -> None:
    ends = torch.ones(1, 20, dtype=torch.bool)
    for visual in (None, ends, ~ends):
        assert text_guided(prompt_of(20, visual=visual), torch.tensor([[8, 5]]), window=4).sum() == 13


def test_random_differs_between_layers_and_seeds_and_not_between_calls() -> None:
    kept = torch.tensor([[8, 8]])

    def draw(layer: int, seed: int) -> str:
        return str(random(prompt_of(30, layer=layer), kept, window=4, seed=seed).tolist())

    assert draw(0, 0) == draw(0, 0)
    assert len({draw(0, 0), draw(1, 0), draw(0, 1)}) == 3


def test_of_equal_tokens_the_first_are_kept() -> None:
    prompt = Prompt(torch.zeros(1, 2, 20, 8), torch.zeros(1, 1, 20, 8), 1.0)
    chosen = observation_window(prompt, torch.tensor([[7]]), window=4, pool=1)
    assert chosen[0, 0].nonzero()[:, 0].tolist() == [0, 1, 2, 16, 17, 18, 19]


def test_blocks_of_any_size_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = prompt_of(64, rows=2, heads=8, kvs=4)
    counted = prompt.last(16)[:, -16:]
    whole = observe.attention_from(prompt, counted)
    for chunk in (1, 6000, 20000, 60000):
        monkeypatch.setattr(observe, "CHUNK_BYTES", chunk)
        assert torch.allclose(observe.attention_from(prompt, counted), whole, atol=1e-7)


def test_scores_are_formed_in_fp32_whatever_the_cache_holds() -> None:
    prompt = prompt_of(40)
    half = Prompt(prompt.query.bfloat16(), prompt.key.bfloat16(), prompt.scaling)
    exact = Prompt(half.query.float(), half.key.float(), prompt.scaling)
    assert torch.equal(importances(half), importances(exact))


def test_a_sliding_window_hides_what_a_query_does_not_see() -> None:
    prompt = prompt_of(20, span=5)
    seen = observe.attention_from(prompt, torch.ones(1, 1, dtype=torch.bool))
    assert seen[0, 0].nonzero()[:, 0].tolist() == [15, 16, 17, 18, 19]


def test_settings_that_make_no_sense_are_refused() -> None:
    kept = torch.tensor([[8, 8]])
    with pytest.raises(ValueError, match="`pool` must be odd, got 4"):
        observation_window(prompt_of(), kept, pool=4)
    with pytest.raises(ValueError, match="`window` must be a whole number above 0, got 0"):
        sinks_and_recent(prompt_of(), kept, window=0)
    with pytest.raises(ValueError, match="`sinks` must be a whole number of tokens, at least 0, got -1"):
        observation_window(prompt_of(), kept, sinks=-1)


def test_a_selection_is_found_by_name_or_taken_as_it_is() -> None:
    assert find_selection("random", 8).func is random  # type: ignore[attr-defined]
    assert find_selection(functools.partial(random, seed=3, window=8), 8)
    with pytest.raises(ValueError, match="did you mean text_guided"):
        find_selection("text_guide", 8)
    with pytest.raises(ValueError, match="`select` must keep the budget's window of 8 tokens, got .* window 4"):
        find_selection(functools.partial(random, window=4), 8)


@pytest.mark.parametrize("name", sorted(SELECTIONS))
@pytest.mark.parametrize("length", [5, 9, 20])
def test_a_row_is_chosen_from_as_if_it_were_alone(name: str, length: int) -> None:
    whole = prompt_of(40, rows=2, valid=left(40, 40, length))
    visual = torch.zeros(2, 40, dtype=torch.bool)
    visual[0, 2:9] = visual[1, -4:-2] = True  # the text behind the first row's picture is longer than the second row
    whole = dataclasses.replace(whole, visual=visual)
    alone = Prompt(whole.query[1:, :, -length:], whole.key[1:, :, -length:], whole.scaling, None, visual[1:, -length:])
    kept = torch.tensor([[12, 7], [3, 4]])
    both = SELECTIONS[name](whole, kept, window=1)
    assert torch.equal(both[1:, :, -length:], SELECTIONS[name](alone, kept[1:], window=1))
