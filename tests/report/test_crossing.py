"""What a crossing campaign is shown as: tables that say what the file holds, and a plot of all its parts."""

from __future__ import annotations

import copy
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from headscope.bench import calibrate, crossing
from headscope.report import crossing_plot, crossing_table
from headscope.report.bounds_plot import LINES
from tests.bench.stand_in import machine


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("crossing")
    plain: dict[str, Any] = {"device": "cpu", "process": machine()}
    calibrate.run(folder / "c.json", "abc", shapes=["llama-3.1-8b", "llama-3.2-3b"], **plain)
    return crossing.run(folder / "x.json", "abc", calibration=folder / "c.json", apart="block", blocks=2, **plain)


def pixels(png: bytes, colour: str) -> int:
    image = np.asarray(Image.open(io.BytesIO(png)).convert("RGB"), dtype=int)
    wanted = tuple(int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return int((np.abs(image - wanted).max(axis=-1) < 12).sum())


def rows(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_crossings_stand_beside_their_predictions(document: dict[str, Any]) -> None:
    found = rows(crossing_table.of_crossings(document["crossings"]))
    assert [row[:2] for row in found[:3]] == [["llama-3.1-8b", f"{act} / {kv}"] for act, kv in
                                              (("50%", "30%"), ("70%", "30%"), ("50%", "50%"))]  # fmt: skip
    for row, at in zip(found, document["crossings"], strict=True):
        if at["measured_tokens"] is not None:
            assert row[4] == f"{at['measured_tokens'] / 1024:.1f}K"
            assert row[6] == f"{at['off_tokens'] / 1024:+.1f}K"
        assert row[3] == f"{at['predicted_tokens'] / 1024:.1f}K"


def test_a_crossing_outside_of_what_was_timed_says_on_which_side(document: dict[str, Any]) -> None:
    at = copy.deepcopy(document["crossings"][0]) | {"measured_tokens": None, "low": None, "off_tokens": None}
    points = at["advantages_ms"]
    at["advantages_ms"] = [point for point in points if point["mean"] > 0]
    assert rows(crossing_table.of_crossings([at]))[0][4].startswith("below ")
    at["advantages_ms"] = [point for point in points if point["mean"] < 0]
    assert rows(crossing_table.of_crossings([at]))[0][4].startswith("above ")


def test_speed_ups_stand_beside_their_bounds(document: dict[str, Any]) -> None:
    found = rows(crossing_table.of_speed_ups(document["speed_ups"]))
    assert len(found) == 2 * len(crossing.CONTEXTS)
    last = next(row for row in found if row[:2] == ["llama-3.1-8b", "128K"])
    assert last[6] == "1.60 / 1.28 / 2.44" and last[5].startswith("2.0")


def test_a_bad_baseline_is_called_one(document: dict[str, Any]) -> None:
    text = crossing_table.of(document, "scores/bench/x.json")
    masked = next(line for line in text.splitlines() if "| masked | 128K" in line)
    split = next(line for line in text.splitlines() if "| split | 128K" in line)
    assert "above its bound: a bad baseline" in masked and "bad" not in split
    assert "predicted from c.json (commit abc)" in text and "[scores/bench/x.json](scores/bench/x.json)" in text


def test_the_plot_has_every_branch_and_every_attention(document: dict[str, Any], tmp_path: Path) -> None:
    png = crossing_plot.render(document)
    without = crossing_plot.render(document | {"baselines": []})
    for _, colour, _, _ in LINES.values():
        assert pixels(png, colour) > 1000
    assert pixels(png, crossing_plot.PATHS["masked"]) > pixels(without, crossing_plot.PATHS["masked"]) + 300
    assert (
        Image.open(crossing_plot.draw(document, tmp_path / "a.png")).size[1] > Image.open(io.BytesIO(without)).size[1]
    )
    assert crossing_plot.render(document) == png


def test_predicted_lines_are_drawn_where_there_are_predictions(document: dict[str, Any]) -> None:
    colour = crossing_plot.PAIRS[1]
    assert pixels(crossing_plot.render(document), colour) > pixels(
        crossing_plot.render(document | {"predictions": []}), colour
    )
