"""``headscope bytes calibrate``: measure this machine, and predict from that where the branches cross."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headscope.cli.measure import RESULTS
from headscope.cli.model import free_device
from headscope.cli.place import Place, check_writable
from headscope.cli.summary import table

FITS = ("shape", "bandwidth, TB/s", "farthest step, ms")
COSTS = ("shape", "activations", "cache", "beyond its bytes, ms", "over dense, ms")


def calibrate(
    place: Place,
    /,
    *,
    shapes: list[str],
    contexts: list[int],
    keep_act: list[float],
    keep_kv: list[float],
    both: list[list[float]],
    dtype: str,
    layers: int | None,
    repeats: int,
    rounds: int,
    measured: Path | None,
    device: str | None,
    commit: str | None,
    out: Path | None,
) -> None:
    """Time the steps, write the calibration, and print its fits and the crossings that it predicts."""
    import torch

    from headscope.accounting.calibration import Calibration
    from headscope.bench.calibrate import run
    from headscope.bench.provenance import hardware

    chosen = device or free_device().partition(":")[0]
    result = place.result(out or RESULTS / f"calibration-{slug(hardware(torch.device(chosen)))}.json")
    check_writable([result])
    campaign = None if measured is None else read_crossing(measured)
    document = run(
        result,
        commit,
        shapes=shapes,
        contexts=contexts,
        keep_act=keep_act,
        keep_kv=keep_kv,
        both=both,
        dtype=dtype,
        layers=layers,
        repeats=repeats,
        rounds=rounds,
        device=chosen,
    )
    print(f"\n{told(document)}\nwrote {result}")
    if campaign is not None:
        print(f"\n{beside(campaign, Calibration.load(result))}")


def slug(hardware: dict[str, Any]) -> str:
    """Name a machine as files do."""
    return re.sub(r"[^a-z0-9]+", "-", str(hardware.get("gpu") or hardware["cpu"]).lower()).strip("-")


def told(document: dict[str, Any]) -> str:
    """Say what a calibration found: bandwidths, and each branch's kernel cost."""
    fits = [(at["shape"], f"{at['tb_per_s']:.3f}", f"{at['residual_ms']:.3f}") for at in document["fits"]]
    costs = [row for at in document["fits"] for row in _costs(at)]
    return f"a copy moves {document['copy_tb_per_s']} TB/s\n\n{table(FITS, fits)}\n\n{table(COSTS, costs)}"


def _costs(fit: dict[str, Any]) -> Sequence[tuple[str, ...]]:
    dense = next((at["ms"] for at in fit["costs"] if at["keep_act"] == at["keep_kv"] == 1), 0.0)
    return [
        (fit["shape"], f"{at['keep_act']:g}", f"{at['keep_kv']:g}", f"{at['ms']:.3f}", f"{at['ms'] - dense:+.3f}")
        for at in fit["costs"]
    ]


def read_crossing(path: Path) -> dict[str, Any]:
    """Read a result of `headscope bench crossing`; ValueError for anything else."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"`measured` must be a result of `headscope bench crossing`, {path} is no JSON") from error
    if not isinstance(document, dict) or document.get("bench") != "crossing":
        raise ValueError(f"`measured` must be a result of `headscope bench crossing`, {path} is none")
    return document


def beside(campaign: dict[str, Any], calibration: Any) -> str:
    """Lay the crossings of a campaign beside what a calibration, that holds none of its cells, predicts of them."""
    from headscope.bench import crossing_summary
    from headscope.report.crossing_table import of_crossings

    return of_crossings(crossing_summary.of(campaign, calibration)["crossings"])
