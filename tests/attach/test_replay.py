"""Decode steps that are replayed give what the model's own modules give, and know when they may not be."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import pytest
import torch

import headscope as hs
from headscope.attach import replay
from headscope.budget import Budget
from headscope.cache import RaggedCache
from headscope.families import geometry, language_model
from tests.attach.models import CACHE, MODELS, tokens
from tests.fused.test_sparse import thresholds

NEW = {"max_new_tokens": 40, "do_sample": False}


class Called:
    """Stands for a CUDA graph where there is no GPU: runs the work anew each time, and counts."""

    made, calls = 0, 0

    def __init__(self, work: Any, layers: Any, new: int) -> None:
        Called.made += 1
        self._work, self._layers, self._new = work, layers, new
        self._places = [each.lengths for each in layers]

    @property
    def stale(self) -> bool:
        moved = any(each.lengths is not own for each, own in zip(self._layers, self._places, strict=True))
        return moved or min(each.room for each in self._layers) < self._new

    def __call__(self) -> Any:
        Called.calls += 1
        return self._work()


@pytest.fixture(autouse=True)
def without_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(replay, "Graph", Called)
    monkeypatch.setattr(replay, "on_gpu", lambda ids: True)
    Called.made = Called.calls = 0
    yield


def budget(model: Any, kept: int = 12) -> Budget:
    shape = geometry(model.config)
    spread = torch.arange(shape.layers * shape.kv_heads).view(shape.layers, shape.kv_heads) % 5
    return Budget(kept + spread, 8)


@pytest.mark.parametrize("name", [name for name in MODELS if "sliding" not in name])
def test_answers_are_those_of_the_models_own_modules(name: str) -> None:
    model, inputs = MODELS[name]()
    with hs.compress(model, budget(model), graph=False):
        expected = model.generate(**inputs, **NEW)
    assert Called.calls == 0
    with hs.compress(model, budget(model)):
        found = model.generate(**inputs, **NEW)
    assert torch.equal(found, expected)
    assert (Called.made, Called.calls) == (1, NEW["max_new_tokens"] - 1)


def test_rows_of_different_lengths_and_padding() -> None:
    model, _ = MODELS["qwen3"]()
    ids = tokens(40, rows=3)
    mask = torch.ones_like(ids)
    mask[0, :25], mask[2, :3] = 0, 0
    inputs = {"input_ids": ids * mask, "attention_mask": mask}
    found = []
    for graph in (False, True):
        with hs.compress(model, budget(model), graph=graph):
            found.append(model.generate(**inputs, **NEW))
    assert torch.equal(*found) and Called.calls == NEW["max_new_tokens"] - 1


def test_a_turn_on_the_same_cache_goes_on_and_the_graph_with_it() -> None:
    model, _ = MODELS["llama"]()
    found = []
    for graph in (False, True):
        cache = RaggedCache()
        with hs.compress(model, budget(model), graph=graph):
            first = model.generate(input_ids=tokens(40), **{CACHE: cache}, max_new_tokens=6)
            more = torch.cat([first, tokens(5, seed=3)], dim=1)
            found.append(model.generate(input_ids=more, **{CACHE: cache}, max_new_tokens=6))
    assert torch.equal(*found) and Called.made == 1


def test_a_hook_on_a_module_is_seen() -> None:
    model, inputs = MODELS["llama"]()
    attention = language_model(model).layers[1].self_attn
    handle = attention.o_proj.register_forward_pre_hook(lambda module, args: (args[0] * 0,))
    try:
        with hs.compress(model, budget(model), graph=False):
            expected = model.generate(**inputs, **NEW)
        with hs.compress(model, budget(model)):
            assert torch.equal(model.generate(**inputs, **NEW), expected) and Called.calls == 0
    finally:
        handle.remove()


def test_a_model_that_is_being_compiled_runs_its_own_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    model, inputs = MODELS["llama"]()
    with hs.compress(model, budget(model)):
        model.generate(**inputs, **NEW)
    assert Called.calls == 0


def test_what_logits_alone_cannot_give_comes_from_the_model() -> None:
    model, inputs = MODELS["llama"]()
    with hs.compress(model, budget(model)):
        found = model.generate(**inputs, **NEW, output_hidden_states=True, return_dict_in_generate=True)
    assert Called.calls == 0 and len(found.hidden_states) == NEW["max_new_tokens"]


def test_layers_with_a_sliding_window_go_through_the_model() -> None:
    model, inputs = MODELS["mistral_sliding"]()
    with hs.compress(model, budget(model, 8)):
        model.generate(**inputs, **NEW)
    assert Called.calls == 0


def test_the_model_has_its_own_forward_back() -> None:
    model, inputs = MODELS["llama"]()
    before = dict(vars(model))
    with pytest.raises(RuntimeError), hs.compress(model, budget(model)):
        model.generate(**inputs, **NEW)
        raise RuntimeError
    assert "forward" not in vars(model) and vars(model).keys() == before.keys()


def two_turns(graph: bool, between: Callable[[Any], AbstractContextManager[Any]]) -> torch.Tensor:
    """Give the second of two turns on one cache, inside a block that changes the model."""
    model, cache = MODELS["llama"]()[0], RaggedCache()
    with hs.compress(model, budget(model), graph=graph):
        first = model.generate(input_ids=tokens(40), **{CACHE: cache}, max_new_tokens=6)
        more = torch.cat([first, tokens(5, seed=3)], dim=1)
        with between(model):
            return model.generate(input_ids=more, **{CACHE: cache}, max_new_tokens=12)


@contextmanager
def hooked(model: Any) -> Iterator[None]:
    hook = language_model(model).layers[1].self_attn.o_proj.register_forward_pre_hook(lambda _, args: (args[0] * 0,))
    try:
        yield
    finally:
        hook.remove()


@contextmanager
def moved(model: Any) -> Iterator[None]:
    weight = language_model(model).layers[1].mlp.up_proj.weight
    before = weight.data
    weight.data = before.flip(0).contiguous()
    try:
        yield
    finally:
        weight.data = before


def sparse(model: Any) -> AbstractContextManager[Any]:
    return hs.sparsify(model, thresholds(model, 1.0))


@pytest.mark.parametrize("between", [hooked, moved, sparse])
def test_a_model_that_changes_between_turns_is_captured_anew_or_runs_itself(between: Any) -> None:
    expected = two_turns(False, between)
    made = Called.made
    assert torch.equal(two_turns(True, between), expected)
    assert Called.made - made == (1 if between is hooked else 2)


def test_a_model_that_changes_between_steps_of_ones_own_loop_is_seen() -> None:
    model, found = MODELS["llama"]()[0], []
    for graph in (False, True):
        cache, ids = RaggedCache(), tokens(40)
        with torch.no_grad(), hs.compress(model, budget(model), graph=graph, pieces=False):
            model(input_ids=ids, **{CACHE: cache})
            for place in range(40, 46):
                with hooked(model) if place % 2 else nullcontext():
                    step = model(
                        input_ids=tokens(1, seed=place), position_ids=torch.tensor([[place]]), **{CACHE: cache}
                    )
        found.append(step.logits)
    torch.testing.assert_close(*found)
    assert Called.calls == 3


def test_a_copy_of_a_cache_goes_on_by_itself() -> None:
    model, _ = MODELS["llama"]()
    cache = RaggedCache()
    with hs.compress(model, budget(model)):
        first = model.generate(input_ids=tokens(40), **{CACHE: cache}, max_new_tokens=6)
        copied = copy.deepcopy(cache)
        assert cache.layers[0].replay is not None and copied.layers[0].replay is None
        more = torch.cat([first, tokens(5, seed=3)], dim=1)
        ends = [model.generate(input_ids=more, **{CACHE: own}, max_new_tokens=6) for own in (copied, cache)]
    assert torch.equal(*ends) and Called.made == 2


def test_a_mask_that_leaves_tokens_out_is_refused_as_without_a_graph() -> None:
    model, cache = MODELS["llama"]()[0], RaggedCache()
    with torch.no_grad(), hs.compress(model, budget(model)):
        model.generate(input_ids=tokens(40), **{CACHE: cache}, max_new_tokens=6)
        place = torch.tensor([[cache.get_seq_length()]])
        with pytest.raises(ValueError, match=r"`attention_mask` must be \[1, 46\]"):
            model(input_ids=tokens(1), attention_mask=torch.ones(1, 1), position_ids=place, **{CACHE: cache})


def test_a_cache_that_is_dropped_takes_its_graph_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Weak(Called):
        """Like a CUDA graph, does not hold the work it was made of."""

        def __init__(self, work: Any, layers: Any, new: int) -> None:
            super().__init__(work, layers, new)
            held = weakref.WeakMethod(work)
            self._work = lambda: held()()  # type: ignore[misc]

    monkeypatch.setattr(replay, "Graph", Weak)
    model, cache = MODELS["llama"]()[0], RaggedCache()
    with hs.compress(model, budget(model)):
        model.generate(input_ids=tokens(40), **{CACHE: cache}, max_new_tokens=6)
    held = weakref.ref(cache.layers[0].replay), weakref.ref(cache.layers[0].segments)
    gc.disable()
    try:
        del cache
        assert [each() for each in held] == [None, None]
    finally:
        gc.enable()
