"""``headscope evaluate acceptance``: how much of what each draft proposes stands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscope.cli import summary
from headscope.cli.measure import RESULTS
from headscope.cli.model import Model
from headscope.cli.place import Place, check_writable

if TYPE_CHECKING:
    from headscope.page import Page


def acceptance(
    place: Place,
    /,
    *,
    model: Model,
    pages: list[Page],
    scores: Path | None,
    tasks: list[str],
    drafts: list[str],
    per_head: list[int],
    gammas: list[int],
    window: int,
    ratio: float,
    prompts: int,
    max_new_tokens: int,
    batch: int,
    dtype: str,
    device: str | None,
    device_map: str | None,
    out: Path | None,
) -> None:
    """Measure every setting that the result file does not hold yet; print the table and write the file."""
    from headscope.bench.acceptance import run
    from headscope.evaluate.acceptance import settings
    from headscope.scores import as_scores, find_shipped

    result = place.result(out or RESULTS / f"acceptance-{model.label}.json")
    check_writable([result])
    found = as_scores(scores or find_shipped(model.name or model.path)).check(model.geometry())
    points = settings(tasks, drafts, per_head, gammas, window=window, ratio=ratio)
    loaded, processor = model.load(dtype, device, device_map)
    counts = {"picture_prompts": prompts, "batch": batch, "max_new_tokens": max_new_tokens}
    measured = run(loaded, processor, pages, found, points, result, **counts, say=_say)
    print(f"\n{summary.of_acceptance(measured)}\nwrote {result}")


def _say(point: dict[str, Any]) -> None:
    print(summary.of_acceptance_point(point), flush=True)
