"""A GPU: its bandwidth and its memory, from a table of datasheets or from a calibration."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope.accounting.calibration import Calibration
from headscope.resources import find


@dataclass(frozen=True)
class Gpu:
    """name: as PyTorch gives it. tb_per_s: what its datasheet promises; None: not in the table. memory_bytes: likewise,
    or as a calibration found it. calibration: of this GPU, where there is one.
    """

    name: str
    tb_per_s: float | None
    memory_bytes: float | None
    calibration: Calibration | None = None


def find_gpu(name: str, calibrations: Sequence[Calibration] = ()) -> Gpu:
    """Find a GPU by its name, a part of it that no other has, or a calibration file.

    calibrations: those at hand; the last one of this GPU is taken. Raises ValueError with the near names.
    """
    if name.endswith(".json"):
        return _of(Calibration.load(Path(name).expanduser()))
    known = [*table(), *(each.device for each in calibrations)]
    chosen = _named(name, list(dict.fromkeys(known)))
    found = [each for each in calibrations if each.device == chosen]
    return _of(found[-1]) if found else _of_table(chosen)


def table() -> dict[str, dict[str, float]]:
    """Give bandwidth and memory of well-known GPUs by the name that PyTorch gives them: decimal TB/s and GB."""
    return json.loads(find("data", "gpus.json").read_text(encoding="utf-8"))


def _named(name: str, known: Sequence[str]) -> str:
    if exact := [each for each in known if _plain(each) == _plain(name)]:
        return exact[0]
    parts = re.findall(r"[a-z]+\d*|\d+", name.lower())
    held = [each for each in known if parts and set(parts) <= set(re.findall(r"[a-z]+\d*|\d+", each.lower()))]
    if len(held) == 1:
        return held[0]
    near = held or difflib.get_close_matches(name.lower(), [each.lower() for each in known], 3, 0.4)
    hint = f"it may be {', '.join(near)}" if held else f"near: {', '.join(near)}" if near else "none is near"
    raise ValueError(
        f"`gpu` must be one of {', '.join(known)}, or a file of `headscope bytes calibrate`; got {name!r}, {hint}"
    )


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _of_table(name: str) -> Gpu:
    figures = table()[name]
    return Gpu(name, figures["tb_per_s"], figures["memory_gb"] * 1e9)


def _of(calibration: Calibration) -> Gpu:
    figures: Mapping[str, Any] = table().get(calibration.device, {})
    gib = calibration.hardware.get("memory_gib")
    memory = gib * 2**30 if gib else figures["memory_gb"] * 1e9 if figures else None
    return Gpu(calibration.device, figures.get("tb_per_s"), memory, calibration)
