"""``headscope generate``: one answer, and what its cache came to."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headscope.cli import summary
from headscope.cli.bind import bind, target
from headscope.cli.model import Model
from headscope.cli.place import Place

if TYPE_CHECKING:
    from headscope.budget import Budget
    from headscope.scores import HeadScores
    from headscope.speculate import SparseToDense


def generate(
    place: Place,
    /,
    *,
    model: Model,
    image: Path | list[Path],
    prompt: str,
    budget_file: Path | None,
    sparsity_file: Path | None,
    per_head: int | None,
    rule: str,
    window: int,
    scores: Path | None,
    select: dict[str, Any],
    draft: dict[str, Any],
    gamma: int | Literal["auto"],
    offload: bool,
    max_new_tokens: int,
    dtype: str,
    device: str | None,
    device_map: str | None,
) -> None:
    """Answer a question about pictures; print the answer, its speed and the bytes of the cache.

    With a draft the answer is the full cache's, and what is said to be kept is what the draft keeps.
    """
    from headscope.evaluate.single import answer
    from headscope.page.image import decode

    if budget_file is not None and per_head is not None:
        raise ValueError("`budget` and `per_head` exclude each other; give one of them")
    drafted = _drafted(draft)
    if drafted is not None and sparsity_file is not None:
        raise ValueError("`sparsity` and `draft` exclude each other: what verifies must be what would decode")
    if drafted is None and offload:
        raise ValueError("`offload` must be false without a draft: it is where the full cache waits to verify one")
    images = [decode(path, name=str(path)) for path in (image if isinstance(image, list) else [image])]
    plan: dict[str, Any] = {}
    if budget_file is not None:
        plan = {"budget": _budget(budget_file, model)}
    elif (kept := _kept(per_head, drafted)) is not None:
        plan = {"scores": _scores(scores, model), "per_head": kept, "rule": rule, "window": window}
    decoder = None if drafted is None else _decoder(*drafted, gamma, offload, _selection(select), plan)
    loaded, processor = model.load(dtype, device, device_map)
    compressed = _compressed(loaded, select, plan) if plan and decoder is None else None
    with _sparse(loaded, sparsity_file):
        found = answer(
            loaded, processor, images, prompt, compressed=compressed, decoder=decoder, max_new_tokens=max_new_tokens
        )
    print(summary.of_answer(found))
    if "budget" in plan and (lost := summary.of_lost(plan["budget"].clipped(found.prompt_tokens))):
        print(lost)


def _drafted(draft: dict[str, Any]) -> tuple[Callable[..., Any], dict[str, Any]] | None:
    """Give a draft's function and its settings; None where there is no draft."""
    from headscope.speculate import none

    function = target(draft.get("_target_", ""), "draft")
    settings = {name: value for name, value in draft.items() if name != "_target_"}
    return None if function is none else (function, bind(function, settings, "draft."))


def _follows_plan(function: Callable[..., Any]) -> bool:
    return "budget" in inspect.signature(function).parameters


def _kept(per_head: int | None, drafted: tuple[Callable[..., Any], dict[str, Any]] | None) -> int | None:
    """Give the tokens that a head keeps on average: those of a draft that has a plan, unless others are asked for."""
    if per_head is None and drafted is not None and _follows_plan(drafted[0]):
        return drafted[1].get("per_head")
    return per_head


def _decoder(
    function: Callable[..., Any],
    settings: dict[str, Any],
    gamma: int | str,
    offload: bool,
    select: Any,
    plan: dict[str, Any],
) -> SparseToDense:
    """Make the decoder: a draft that has a plan takes it whole, others what they know of it."""
    from headscope.speculate import SparseToDense

    if _follows_plan(function):
        return SparseToDense(function, gamma=gamma, offload=offload, **plan, select=select)
    if "budget" in plan:
        raise ValueError(f"`budget` is nothing that the draft {function.__name__} follows; use draft=head_budget")
    known = {name: value for name, value in plan.items() if name in settings}
    return SparseToDense(function, gamma=gamma, offload=offload, **(settings | known))


def _selection(select: dict[str, Any]) -> Any:
    function = target(select.get("_target_", ""), "select")
    settings = {name: value for name, value in select.items() if name != "_target_"}
    return partial(function, **bind(function, settings, "select."))


def _compressed(loaded: Any, select: dict[str, Any], plan: dict[str, Any]) -> AbstractContextManager[Any]:
    from headscope.attach import compress

    return compress(loaded, select=_selection(select), **plan)


def _sparse(loaded: Any, path: Path | None) -> AbstractContextManager[Any]:
    from headscope.sparsity import sparsify

    return nullcontext() if path is None else sparsify(loaded, path)


def _budget(path: Path, model: Model) -> Budget:
    from headscope.budget import Budget

    shape = model.geometry()
    return Budget.load(path).check(shape.layers, shape.kv_heads)


def _scores(scores: Path | None, model: Model) -> HeadScores:
    from headscope.scores import as_scores, find_shipped

    return as_scores(scores or find_shipped(model.name or model.path)).check(model.geometry())
