"""``headscope generate``: one answer, and what its cache came to."""

from __future__ import annotations

from contextlib import AbstractContextManager
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


def generate(
    place: Place,
    /,
    *,
    model: Model,
    image: Path | list[Path],
    prompt: str,
    budget_file: Path | None,
    per_head: int | None,
    rule: str,
    window: int,
    scores: Path | None,
    select: dict[str, Any],
    draft: Literal["none"],
    max_new_tokens: int,
    dtype: str,
    device: str | None,
    device_map: str | None,
) -> None:
    """Answer a question about pictures; print the answer, its speed and the bytes of the cache."""
    from headscope.evaluate.single import answer
    from headscope.page.image import decode

    if budget_file is not None and per_head is not None:
        raise ValueError("`budget` and `per_head` exclude each other; give one of them")
    images = [decode(path, name=str(path)) for path in (image if isinstance(image, list) else [image])]
    plan: dict[str, Any] = {}
    if budget_file is not None:
        plan = {"budget": _budget(budget_file, model)}
    elif per_head is not None:
        plan = {"scores": _scores(scores, model), "per_head": per_head, "rule": rule, "window": window}
    loaded, processor = model.load(dtype, device, device_map)
    compressed = _compressed(loaded, select, plan) if plan else None
    found = answer(loaded, processor, images, prompt, compressed=compressed, max_new_tokens=max_new_tokens)
    print(summary.of_answer(found))


def _compressed(loaded: Any, select: dict[str, Any], plan: dict[str, Any]) -> AbstractContextManager[Any]:
    from headscope.attach import compress

    function = target(select.get("_target_", ""), "select")
    settings = {name: value for name, value in select.items() if name != "_target_"}
    return compress(loaded, select=partial(function, **bind(function, settings, "select.")), **plan)


def _budget(path: Path, model: Model) -> Budget:
    from headscope.budget import Budget

    shape = model.geometry()
    return Budget.load(path).check(shape.layers, shape.kv_heads)


def _scores(scores: Path | None, model: Model) -> HeadScores:
    from headscope.scores import as_scores, find_shipped

    return as_scores(scores or find_shipped(model.name or model.path)).check(model.geometry())
