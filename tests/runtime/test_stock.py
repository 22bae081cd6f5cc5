"""The stock forward gives a model's own logits for new tokens on segments, rows of different lengths together."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache

from headscope.attach.entry import sliding_windows
from headscope.cache.segments import Segments
from headscope.families import language_model
from headscope.runtime import WindowedSegments, stock
from tests.attach.models import CACHE, MODELS, tokens

LENGTHS = (30, 17)


def prompt_of(model: Any, chosen: Tensor | None = None) -> tuple[list[Segments], list[Tensor]]:
    """Read two prompts, each by itself; give segments of both, and the ids. chosen: bool [row, 2, token], held ones."""
    ids = [tokens(length, seed=length) for length in LENGTHS]
    caches = [DynamicCache(), DynamicCache()]
    with torch.no_grad():
        for row, cache in zip(ids, caches, strict=True):
            model(row, **{CACHE: cache})
    made = []
    for index, window in enumerate(sliding_windows(language_model(model).config)):
        key, value = (
            torch.cat([left_padded(getattr(cache.layers[index], name)) for cache in caches])
            for name in ("keys", "values")
        )
        there = torch.arange(30) >= 30 - torch.tensor(LENGTHS)[:, None]
        held = there[:, None].expand(-1, key.shape[1], -1) if chosen is None else chosen & there[:, None]
        given = key, value, held.nonzero()[:, 2], held.sum(-1, dtype=torch.int32), 8
        kept = Segments.of(*given) if window is None else WindowedSegments.of(*given).slide(window, held, there)
        made.append(kept)
    return made, ids


def left_padded(dense: Tensor) -> Tensor:
    return torch.nn.functional.pad(dense, (0, 0, 30 - dense.shape[2], 0))


@pytest.mark.parametrize("new", [1, 4])
@pytest.mark.parametrize("name", ["llama", "qwen3", "mistral_sliding", "qwen2_sliding"])
def test_the_logits_are_those_of_the_whole_sequence(name: str, new: int) -> None:
    model, _ = MODELS[name]()
    layers, ids = prompt_of(model)
    step, more = stock(model), tokens(2 * new, seed=3, rows=2)
    positions = torch.tensor(LENGTHS)[:, None] + torch.arange(new)
    for turn in range(2):
        given = more[:, turn * new : (turn + 1) * new]
        found = step(given, positions + turn * new, layers)
        for row in range(2):
            whole = torch.cat([ids[row], more[row : row + 1, : (turn + 1) * new]], dim=1)
            with torch.no_grad():
                expected = model(whole).logits[0, -new:]
            assert torch.allclose(found[row], expected, atol=2e-5)
    assert [layer.lengths.tolist() for layer in layers] == [[[30 + 2 * new] * 2, [17 + 2 * new] * 2]] * 3


def test_a_window_counts_places_not_what_is_held() -> None:
    chance = torch.Generator().manual_seed(2)
    chosen = torch.rand(2, 2, 30, generator=chance) < 0.5
    chosen[..., -2:] = True
    model, _ = MODELS["mistral_sliding"]()
    layers, _ = prompt_of(model, chosen)
    segments = layers[0]
    assert isinstance(segments, WindowedSegments) and segments.window == 12
    for after in range(20):
        for back in range(3):
            passed = segments.passed(back)
            for row, length in enumerate(LENGTHS):
                query = length + after - 1 - back
                for kv in range(2):
                    held = [at - 30 + length for at in range(30) if chosen[row, kv, at] and at >= 30 - length]
                    held += range(length, length + after)
                    assert int(passed[row, kv]) == sum(at <= query - 12 for at in held)
        segments.lengths += 1


@pytest.mark.parametrize("layers", [1, 2])
def test_the_first_layers_are_followed_by_the_norm_and_the_head(layers: int) -> None:
    model, _ = MODELS["llama"]()
    held, ids = prompt_of(model)
    more = tokens(2, seed=3, rows=2)
    found = stock(model)(more, torch.tensor(LENGTHS)[:, None] + torch.arange(2), held[:layers])
    whole = torch.cat([ids[1], more[1:]], dim=1)
    with torch.no_grad():
        hidden = model(whole, output_hidden_states=True).hidden_states[layers][:, -2:]
        expected = model.lm_head(model.model.norm(hidden))
    assert torch.allclose(found[1], expected[0], atol=2e-5)
    assert held[layers].lengths.tolist() == [[30, 30], [17, 17]]


def test_queries_can_be_observed() -> None:
    model, _ = MODELS["llama"]()
    layers, _ = prompt_of(model)
    logits, queries = stock(model).observe(tokens(2, rows=2), torch.tensor([[30, 31], [17, 18]]), layers)
    assert logits.shape == (2, 2, 97) and [tuple(query.shape) for query in queries] == [(2, 4, 2, 16)] * 3


def test_the_model_is_as_it_was_also_after_an_error() -> None:
    model, _ = MODELS["llama"]()
    layers, _ = prompt_of(model)
    before = model.config._attn_implementation
    with pytest.raises(IndexError):
        stock(model)(torch.tensor([[500], [1]]), torch.tensor([[30], [17]]), layers)
    assert model.config._attn_implementation == before
    with torch.no_grad():
        model(tokens(4))
