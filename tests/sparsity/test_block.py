"""The block: decode steps from large inputs only, and the model as it was afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import headscope as hs
from headscope.families.projections import projections
from headscope.kernels.backend import INTERPRETED, triton
from headscope.sparsity import Switch, Thresholds, sparsify
from tests.attach.models import CACHE, MODELS, tokens
from tests.sparsity.conftest import tiny_thresholds

ROOT = Path(__file__).parents[2]
NAMES = list(MODELS)


def answer(model: Any, inputs: dict[str, Any], new: int = 8) -> torch.Tensor:
    """Give the logits of some greedy steps, float32 [token, vocabulary]."""
    how = {"do_sample": False, "max_new_tokens": new, "return_dict_in_generate": True, "output_logits": True}
    return torch.cat(model.generate(**inputs, **how).logits)


@contextmanager
def masked_inputs(model: Any, thresholds: Thresholds) -> Iterator[None]:
    """Let hooks mask the inputs of every projection in passes over one token."""

    def hook(threshold: float) -> Any:
        def mask(_module: Any, args: Any) -> Any:
            (x,) = args
            return (torch.where(x.abs() > threshold, x, 0.0) if x.shape[1] == 1 and threshold else x,)

        return mask

    handles = [
        module.register_forward_pre_hook(hook(thresholds.of_layer(index)[name]))
        for index, layer in enumerate(projections(model))
        for name, module in layer.items()
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def state(model: Any) -> list[Any]:
    """Everything of the projections that a block could leave changed."""
    modules = [module for layer in projections(model) for module in layer.values()]
    return [
        (dict(vars(module)), module.weight, module.weight.data_ptr(), module.weight.stride(), module.weight.sum())
        for module in modules
    ]


@pytest.mark.parametrize("name", NAMES)
def test_decode_steps_are_dense_ones_of_masked_inputs_and_the_prompt_is_dense(name: str) -> None:
    model, inputs = MODELS[name]()
    thresholds = tiny_thresholds(name)
    dense = answer(model, inputs)
    with masked_inputs(model, thresholds):
        expected = answer(model, inputs)
    with hs.sparsify(model, thresholds):
        found = answer(model, inputs)
    assert torch.equal(found, expected)
    assert torch.equal(found[0], dense[0]) and not torch.equal(found[1], dense[1])
    assert torch.equal(answer(model, inputs), dense)


@pytest.mark.parametrize("name", NAMES)
def test_keeping_everything_changes_no_bit(name: str) -> None:
    model, inputs = MODELS[name]()
    nothing = tiny_thresholds(name)
    nothing = Thresholds(torch.zeros_like(nothing.values), torch.ones_like(nothing.kept), nothing.weights)
    with sparsify(model, nothing):
        assert torch.equal(answer(model, inputs), answer(model, inputs))
        found = answer(model, inputs)
    assert torch.equal(found, answer(model, inputs))


def test_the_model_is_as_it_was_also_after_an_exception() -> None:
    model, thresholds = MODELS["llama"]()[0], tiny_thresholds("llama")
    first = projections(model)[0]["q_proj"]
    own = first.forward
    first.forward = lambda x: own(x)  # somebody else's, such as accelerate's
    try:
        before = state(model)
        with pytest.raises(RuntimeError, match="inside"), sparsify(model, thresholds):
            assert vars(first)["forward"] is not before[0][0]["forward"]
            raise RuntimeError("inside")
        assert [str(each) for each in state(model)] == [str(each) for each in before]
    finally:
        del first.forward


def test_more_rows_or_tokens_than_allowed_are_dense() -> None:
    model, thresholds = MODELS["llama"]()[0], tiny_thresholds("llama")
    two, three = tokens(1, rows=2), tokens(3)

    def same(ids: torch.Tensor, **limits: Any) -> bool:
        with sparsify(model, thresholds, **limits), torch.no_grad():
            found = model(input_ids=ids).logits
        with torch.no_grad():
            return torch.equal(found, model(input_ids=ids).logits)

    assert same(two) and same(three)
    assert not same(two, rows=2) and not same(two, rows=None) and same(two, rows=1)
    assert same(three, dense_above=2, rows=None) and not same(three, dense_above=3, rows=None)
    assert not same(three, dense_above=None, rows=None) and same(three, dense_above=None, rows=2)


def test_a_row_is_the_same_in_a_batch() -> None:
    model, thresholds = MODELS["llama"]()[0], tiny_thresholds("llama")
    ids = tokens(1, rows=3)
    with sparsify(model, thresholds, rows=None), torch.no_grad():
        together, alone = model(input_ids=ids).logits, [model(input_ids=row[None]).logits for row in ids]
    assert torch.allclose(together, torch.cat(alone), atol=1e-5)


def test_a_draft_that_is_switched_off_to_verify_is_lossless() -> None:
    model, thresholds = MODELS["qwen2"]()[0], tiny_thresholds("qwen2")
    prompt, switch = tokens(20), Switch()

    def next_token(ids: torch.Tensor) -> torch.Tensor:
        return model(input_ids=ids).logits[:, -1:].argmax(-1)

    def by_steps(ids: torch.Tensor, count: int) -> torch.Tensor:
        cache = model(input_ids=ids[:, :-1], use_cache=True).past_key_values
        for _ in range(count):
            step = model(input_ids=ids[:, -1:], **{CACHE: cache}, use_cache=True)
            ids = torch.cat([ids, step.logits.argmax(-1)], dim=1)
        return ids

    with torch.no_grad():
        expected = by_steps(prompt, 12)
        rejected, ids = 0, prompt
        with sparsify(model, thresholds, switch=switch):
            while ids.shape[1] < expected.shape[1]:
                draft = by_steps(ids, 3)
                with switch.off():
                    for place in range(ids.shape[1], draft.shape[1] + 1):
                        right = by_steps(draft[:, :place], 1)[:, -1:]
                        if place == draft.shape[1] or right != draft[:, place]:
                            ids = torch.cat([draft[:, :place], right], dim=1)
                            rejected += place < draft.shape[1]
                            break
    assert torch.equal(ids[:, : expected.shape[1]], expected)
    assert rejected and switch.is_on


def test_a_switch_turns_and_turns_back() -> None:
    switch = Switch()
    with switch.off():
        assert not switch.is_on
        with switch.on():
            assert switch.is_on
        assert not switch.is_on
    with pytest.raises(RuntimeError), switch.off():
        raise RuntimeError
    assert switch.is_on


@pytest.mark.parametrize("outer", ["compress", "sparsify"])
def test_it_nests_with_compress_in_either_order(outer: str) -> None:
    model, inputs = MODELS["qwen2_vl"]()
    budget = hs.allocate(hs.HeadScores.from_values(torch.rand(3, 4), kv_heads=2), per_head=20, window=8)
    blocks = {"compress": lambda: hs.compress(model, budget), "sparsify": lambda: hs.sparsify(model, thresholds)}
    thresholds = tiny_thresholds("qwen2_vl")
    with hs.compress(model, budget), masked_inputs(model, thresholds):
        expected = answer(model, inputs)
    names = [outer, *(name for name in blocks if name != outer)]
    with blocks[names[0]](), blocks[names[1]]():
        found = answer(model, inputs)
    assert torch.equal(found, expected)
    assert not any("forward" in vars(module) for layer in projections(model) for module in layer.values())


def test_what_other_runtimes_see_of_a_sparse_projection() -> None:
    model, thresholds, switch = MODELS["llama"]()[0], tiny_thresholds("llama"), Switch()
    with sparsify(model, thresholds, switch=switch):
        forward: Any = projections(model)[1]["up_proj"].forward
        assert forward.headscope_sparse == thresholds.of_layer(1)["up_proj"]
        with switch.off():
            assert forward.headscope_sparse is None


def test_a_file_will_do_and_wrong_arguments_are_named(tmp_path: Path) -> None:
    model, thresholds = MODELS["llama"]()[0], tiny_thresholds("llama")
    thresholds.save(tmp_path / "t.json")
    with (
        sparsify(model, tmp_path / "t.json"),
        pytest.raises(ValueError, match="`model` is inside a `hs.sparsify` block already"),
        sparsify(model, thresholds),
    ):
        pass
    with pytest.raises(ValueError, match="`rows` must be a whole number above 0, or None for no limit, got 0"):
        sparsify(model, thresholds, rows=0)
    with pytest.raises(ValueError, match="`dense_above` must be a whole number above 0, .* got -1"):
        sparsify(model, thresholds, dense_above=-1)
    other = Thresholds(thresholds.values, thresholds.kept, thresholds.weights + 1)
    with pytest.raises(ValueError, match="expected 4096 weights in q_proj of layer 0, found 4097; .* another model's"):
        sparsify(model, other)


@pytest.mark.gpu
def test_the_kernels_serve_the_block_and_weights_lie_back_in_their_own_memory() -> None:
    device = "cpu" if INTERPRETED else "cuda"
    if triton is None or not (INTERPRETED or torch.cuda.is_available()):
        pytest.skip("kernels need a GPU, or TRITON_INTERPRET=1 from the start")
    model, thresholds = MODELS["llama"]()[0].to(device), tiny_thresholds("llama")
    one_layer = thresholds.values * torch.tensor([[1.0], [0.0], [0.0]])  # the interpreter takes its time
    thresholds = Thresholds(one_layer, thresholds.kept, thresholds.weights)
    before, copies = state(model), [parameter.clone() for parameter in model.parameters()]
    ids = tokens(1).to(device)
    with masked_inputs(model, thresholds), torch.no_grad():
        expected = model(input_ids=ids).logits
    with sparsify(model, thresholds), torch.no_grad():
        weight = projections(model)[0]["down_proj"].weight
        assert weight.shape == (64, 96) and weight.stride() == (1, 64)
        assert torch.allclose(model(input_ids=ids).logits, expected, atol=1e-4)
    assert [each[2:4] for each in state(model)] == [each[2:4] for each in before]
    assert all(torch.equal(*pair) for pair in zip(model.parameters(), copies, strict=True))


@pytest.mark.skipif(triton is None or INTERPRETED, reason="there is no Triton, or these tests run through it as it is")
def test_the_kernels_serve_the_block_through_the_interpreter() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", __file__],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "1 passed" in done.stdout and "skipped" not in done.stdout
