"""Generate: `model.generate` with a draft, and with the arguments that it hands to no custom callable."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from headscope.budget import allocate
from headscope.speculate.decoder import SparseToDense
from headscope.speculate.drafts import Draft, find_draft
from headscope.speculate.refusals import check_arguments

PLAN = frozenset(inspect.signature(allocate).parameters) | {"beta", "seed", "floor"}


def generate(
    model: Any,
    inputs: Mapping[str, Any] | Tensor,
    *,
    draft: str | Callable[..., Draft] | SparseToDense = "head_budget",
    gamma: int | str = 9,
    streamer: Any = None,
    tokenizer: Any = None,
    stop_strings: str | Sequence[str] | None = None,
    refresh: int | str | None = None,
    offload: bool = False,
    resident: int = 0,
    **kwargs: Any,
) -> Any:
    """Give what `model.generate(**inputs, **kwargs)` gives, decoded by a draft and verified (`SparseToDense`).

    inputs: of `generate`, or ids [row, token]. draft: as in `SparseToDense`, or one with all its settings. kwargs: the
    draft's settings, by their names; all others go to `generate`.
    """
    given = dict(inputs) if isinstance(inputs, Mapping) else {"input_ids": inputs}
    if not isinstance(draft, SparseToDense):
        function = find_draft(draft)
        settings = {name: kwargs.pop(name) for name in _names(function) & kwargs.keys()}
        draft = SparseToDense(
            function,
            gamma=gamma,
            streamer=streamer,
            tokenizer=tokenizer,
            stop_strings=stop_strings,
            refresh=refresh,
            offload=offload,
            resident=resident,
            **settings,
        )
    check_arguments(given | kwargs)
    return model.generate(**given, **kwargs, custom_generate=draft)


def _names(function: Callable[..., Draft]) -> set[str]:
    """Give the names of a draft's settings."""
    parameters = inspect.signature(function).parameters.values()
    names = {each.name for each in parameters if each.kind == each.KEYWORD_ONLY}
    return names | PLAN if any(each.kind == each.VAR_KEYWORD for each in parameters) else names
