"""Decoding under a policy: a dense prompt less its last token, then one token at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

from headscope.evaluate.single import cache_name
from headscope.gate.policy import Policy, dense

Inputs = Mapping[str, Any]  # what a model's forward takes for one prompt: `input_ids` [1, token], pixels and the like
Step = Callable[[int], Tensor]  # the next token's id -> float32 logits [vocab] behind it


@contextmanager
def stepping(model: Any, inputs: Inputs, policy: Policy = dense, decode: Policy = dense) -> Iterator[Step]:
    """Run a prompt less its last token, then give the function that runs one token; the prompt's last is its first.

    So a selection sees the prompt without its last token, and that token's own step runs under the policy (ByteCross).
    policy: entered before the prompt runs, as `hs.compress` must be. decode: entered once it has run, so that it
    changes decode steps only.

    Raises ValueError for a prompt of a single token.
    """
    tokens = inputs["input_ids"].shape[1]
    if tokens < 2:
        raise ValueError(f"`inputs` must be a prompt of at least 2 tokens, got {tokens}")
    cache = {cache_name(model): DynamicCache(config=model.config)}

    def step(token: int) -> Tensor:
        # No mask: with one, Qwen2-VL outside of `generate` takes positions for the whole sequence, not for the token.
        ids = torch.tensor([[token]], device=model.device)
        return model(input_ids=ids, use_cache=True, **cache).logits[0, -1].float()

    with policy(model):
        model(**_but_last(inputs, model), use_cache=True, logits_to_keep=1, **cache)
        with decode(model):
            yield step


@torch.no_grad()
def log_probs(
    model: Any, inputs: Inputs, continuation: Sequence[int], policy: Policy = dense, decode: Policy = dense
) -> Tensor:
    """Give the log-probability of each token behind a prompt, scored one at a time: float64 [token], natural log."""
    with stepping(model, inputs, policy, decode) as step:
        fed = [int(inputs["input_ids"][0, -1]), *continuation[:-1]]
        found = [step(token).log_softmax(-1)[target] for token, target in zip(fed, continuation, strict=True)]
    scored = torch.stack(found).double().cpu()
    if not bool(scored.isfinite().all()):
        raise ValueError("`model` gives logits that are no numbers here; try another dtype, such as float32")
    return scored


@torch.no_grad()
def answer(
    model: Any,
    inputs: Inputs,
    policy: Policy = dense,
    decode: Policy = dense,
    *,
    max_new_tokens: int,
    stop: Collection[int] = (),
) -> list[int]:
    """Give the greedy answer's ids, without the id of `stop` that ended it."""
    found: list[int] = []
    with stepping(model, inputs, policy, decode) as step:
        token = int(inputs["input_ids"][0, -1])
        while len(found) < max_new_tokens and (token := int(step(token).argmax())) not in stop:
            found.append(token)
    return found


def ends(model: Any) -> set[int]:
    """Give the ids that end an answer of this model."""
    given = model.generation_config.eos_token_id
    return set() if given is None else {given} if isinstance(given, int) else set(given)


def _but_last(inputs: Inputs, model: Any) -> dict[str, Any]:
    """Drop the last token of everything that runs along the tokens, and move all of it to the model."""
    along = inputs["input_ids"].shape
    moved = {}
    for name, value in inputs.items():
        if isinstance(value, Tensor):
            value = value[:, :-1] if value.shape == along else value
            value = value.to(model.device, model.dtype if value.is_floating_point() else None)
        moved[name] = value
    return moved
