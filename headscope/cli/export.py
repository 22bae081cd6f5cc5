"""The verb ``export``: a score file or a budget file, for another tool."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from headscope.cli.place import Place


def export(place: Place, /, *, scores: Path | None, budget_file: Path | None, to: str, out: Path) -> None:
    """Write scores or a budget in another tool's format."""
    if (scores is None) == (budget_file is None):
        given = "neither" if scores is None else "both"
        raise ValueError(
            f"`scores` or `budget` is required, one of the two, got {given}; give scores=... or budget=..."
        )
    result = place.result(out)
    if scores is not None:
        from headscope.scores import formats as of_scores

        _check(to, of_scores.EXPORTS, "scores")
        of_scores.export(scores, result, to)
    elif budget_file is not None:
        from headscope.budget import formats as of_budgets

        _check(to, of_budgets.EXPORTS, "a budget")
        of_budgets.export(budget_file, result, to)
    print(f"exported {scores or budget_file} for {to} as {result}")


def _check(to: str, known: Collection[str], what: str) -> None:
    if to not in known:
        raise ValueError(f"`to` must be one of {', '.join(known)} for {what}, got {to!r}")
