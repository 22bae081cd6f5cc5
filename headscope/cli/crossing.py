"""``headscope bench crossing``: where the branches cross, beside where they were predicted to."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from headscope.cli.measure import RESULTS
from headscope.cli.model import free_device
from headscope.cli.place import Place, check_writable


def crossing(
    place: Place,
    /,
    *,
    calibration: Path | None,
    shapes: list[str],
    pairs: list[list[float]],
    contexts: list[int],
    around: list[int],
    blocks: int,
    apart: Literal["cell", "branch", "block"],
    baselines: list[str],
    baseline_contexts: list[int],
    dtype: str,
    layers: int | None,
    repeats: int,
    limit_s: float | None,
    device: str | None,
    commit: str | None,
    out: Path | None,
    picture: Path | None,
) -> None:
    """Run the campaign, print its tables, write the result and the plot."""
    from headscope.bench.crossing import run
    from headscope.report import crossing_plot, crossing_table

    chosen = device or free_device().partition(":")[0]
    path = place.result(out or RESULTS / f"crossing-{chosen.partition(':')[0]}.json")
    drawn = place.result(picture or path.with_suffix(".png"))
    check_writable([path, drawn])
    document = run(
        path,
        commit,
        calibration=calibration,
        shapes=shapes,
        pairs=pairs,
        contexts=contexts,
        around=around,
        blocks=blocks,
        apart=apart,
        baselines=baselines,
        baseline_contexts=baseline_contexts,
        dtype=dtype,
        layers=layers,
        repeats=repeats,
        limit_s=limit_s,
        device=chosen,
    )
    crossing_plot.draw(document, drawn)
    print(f"\n{crossing_table.of(document, path.as_posix())}\n\nwrote {path}, {drawn}")
