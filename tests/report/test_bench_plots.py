"""The plots of latency and memory show every line they are given, and what is missing breaks nothing."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from headscope.report import decode_plot, memory_plot
from tests.report.documents import DECODE, MEMORY

VERMILION, BLUE, GREY, BLACK = (213, 94, 0), (0, 114, 178), (102, 102, 102), (0, 0, 0)


def counted(png: bytes, colour: tuple[int, ...]) -> int:
    pixels = np.asarray(Image.open(io.BytesIO(png)).convert("RGB"), dtype=int)
    return int((np.abs(pixels - colour).max(axis=-1) < 12).sum())


def only(document: dict[str, Any], **wanted: Any) -> dict[str, Any]:
    """Leave out cells with other values than these."""
    kept = [row for row in document["cells"] if all(row.get(name) == value for name, value in wanted.items())]
    return document | {"cells": kept}


@pytest.mark.parametrize(("plot", "document"), [(decode_plot, DECODE), (memory_plot, MEMORY)])
def test_each_way_has_its_colour_and_the_same_cells_give_the_same_bytes(plot: Any, document: dict[str, Any]) -> None:
    png = plot.render(document)
    assert all(counted(png, colour) > 60 for colour in (VERMILION, BLUE, GREY))
    assert plot.render(document) == png


def test_a_budget_that_loses_has_a_cross() -> None:
    losing = only(DECODE, shape="vicuna-7b", batch=1)
    faster = [row | {"ms_per_token": 3.9} if row["cache"] == 256 else row for row in losing["cells"]]
    assert counted(decode_plot.render(losing), BLACK) > counted(decode_plot.render(losing | {"cells": faster}), BLACK)


def test_a_full_cache_that_does_not_fit_is_said_to_be_missing() -> None:
    missing = only(DECODE, shape="vicuna-7b", batch=8)
    fitting = [row for row in missing["cells"] if "failed" not in row]
    assert counted(decode_plot.render(missing), VERMILION) > counted(
        decode_plot.render(missing | {"cells": fitting}), VERMILION
    )


@pytest.mark.parametrize(
    ("plot", "document"),
    [
        (decode_plot, only(DECODE, context=131072)),
        (decode_plot, only(DECODE, shape="other")),
        (decode_plot, only(DECODE, cache="full")),
        (memory_plot, only(MEMORY, context=131072)),
        (memory_plot, only(MEMORY, run="budget")),
    ],
)
def test_a_few_cells_can_be_drawn(plot: Any, document: dict[str, Any], tmp_path: Path) -> None:
    path = plot.draw(document, tmp_path / "new" / "a.png")
    assert Image.open(path).size[0] > 600
