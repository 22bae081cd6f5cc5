"""``headscope allocate``: a score file in, a budget file and a map of both out."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from headscope.cli import summary
from headscope.cli.bind import bind, target
from headscope.cli.model import Model
from headscope.cli.place import Place, check_writable

FOLDER = Path("budgets")


def allocate(
    place: Place,
    /,
    *,
    scores: Path | None,
    rule: dict[str, Any],
    per_head: int | None,
    total: int | None,
    ratio_kept: float | None,
    bytes: int | None,
    gib: float | None,
    window: int,
    prompt: int | None,
    reduce: Literal["sum", "mean", "max"],
    batch: int,
    context: int | None,
    dtype: str,
    head_dim: int | None,
    out: Path | None,
    picture: Path | None,
    model: Model | None = None,
) -> None:
    """Plan a budget, write it with its map, and print what it comes to."""
    from headscope.budget import allocate as plan
    from headscope.report import budget_map
    from headscope.scores import as_scores

    source = scores or _shipped(model)
    function = target(rule.get("_target_", ""), "rule")
    settings = bind(function, {name: value for name, value in rule.items() if name != "_target_"}, "rule.")
    found = as_scores(source)
    budget = plan(
        found,
        per_head=per_head,
        total=total,
        ratio_kept=ratio_kept,
        bytes=bytes,
        gib=gib,
        rule=function,
        window=window,
        prompt=prompt,
        reduce=reduce,
        batch=batch,
        context=context,
        dtype=dtype,
        head_dim=head_dim,
        **settings,
    )
    result = place.result(out or FOLDER / f"{source.stem}-{budget.rule}-{budget.per_head:.6g}.json")
    drawn = place.result(picture) if picture else result.with_suffix(".png")
    check_writable([result, drawn])
    told = summary.of_budget(budget, dtype, batch)
    budget.save(result)
    budget_map.draw(found, budget, drawn)
    print(f"{told}\nwrote {result}, {drawn}")


def _shipped(model: Model | None) -> Path:
    from headscope.scores import find_shipped

    if model is None:
        raise ValueError(
            "`scores` is required: give scores=FILE, or model=NAME of one whose scores ship with headscope"
        )
    return find_shipped(model.name or model.path)
