"""The block: `with compress(model, budget)`, and the model as it was after it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from headscope.attach.attention import NAME, register
from headscope.attach.entry import CACHE_NAMES, Entry, sliding_windows
from headscope.attach.generation import own_generate
from headscope.attach.plan import make_plan
from headscope.attach.positions import own_positions
from headscope.attach.replay import replayed
from headscope.attach.step import Policy
from headscope.budget import Budget
from headscope.families import attention_modules, geometry, language_model
from headscope.select import Selection, find_selection


def compress(
    model: nn.Module,
    budget: Budget | str | Path | None = None,
    *,
    select: str | Selection = "observation_window",
    offload: bool = False,
    pieces: bool = True,
    graph: bool = True,
    **plan: Any,
) -> AbstractContextManager[nn.Module]:
    """Let a model decode on a ragged cache inside a `with` block; it is as it was afterwards.

    Any `generate` inside runs its prompt densely, keeps of each layer what the budget says as soon as the layer's own
    attention has run, and appends what comes after. Later turns on the same cache are appended whole.

    budget: a Budget or a budget file; a shorter prompt takes min(kept, prompt). plan: instead of it every keyword of
    `allocate` but `prompt` (scores=..., per_head=...), planned anew for each prompt's length.
    select: which tokens are kept, by name or as a function (`headscope.select`); settings by `functools.partial`.
    offload: copy each prompt's dense keys and values into the CPU's memory before they are dropped.
    pieces: a forward pass outside `generate` may be a piece of a prompt, so layers wait for the first single token (or
    for the prompt length that the budget was planned for); False: each pass on an empty cache is a whole prompt.
    graph: on a GPU, run decode steps as one CUDA graph of fused kernels where the model's stack is like Llama's and
    nothing is hung on it; False: always through the model's own modules.

    Raises ValueError for a budget or scores of another model, a selection with another window, and a model inside such
    a block already.
    """
    config: Any = model.config
    made = make_plan(budget, plan, geometry(config))
    policy = Policy(made, find_selection(select, made.window), offload, pieces, graph)
    attention_modules(model)
    sliding_windows(config.get_text_config())
    return _block(model, policy)


@contextmanager
def _block(model: Any, policy: Policy) -> Iterator[nn.Module]:
    stack: Any = language_model(model)
    before = stack.config._attn_implementation
    if str(before).startswith(NAME):
        raise ValueError("`model` is inside a `hs.compress` block already; leave that first")
    parameters = inspect.signature(stack.forward).parameters
    entry = Entry(model, stack, policy, next(name for name in CACHE_NAMES if name in parameters))
    with ExitStack() as exits:
        exits.callback(stack.set_attn_implementation, before)
        stack.set_attn_implementation(register(before))
        exits.callback(model.register_forward_pre_hook(entry.enter_model, with_kwargs=True).remove)
        exits.callback(stack.register_forward_pre_hook(entry.enter_stack, with_kwargs=True).remove)
        exits.enter_context(own_positions(model))
        if policy.graph:
            exits.enter_context(replayed(model))
        exits.enter_context(own_generate(model, entry))
        yield model
