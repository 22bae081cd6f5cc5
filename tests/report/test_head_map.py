"""The head map: what the picture shows, read back from its pixels."""

from __future__ import annotations

import dataclasses
import io
import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from headscope.report import head_map
from headscope.scores import HeadScores

SIZES = [(12, 12, 4), (28, 28, 4), (32, 32, 32), (80, 64, 8), (2, 2, 1)]


def scores(layers: int, heads: int, kv_heads: int, best: tuple[int, int] | None = None) -> HeadScores:
    values = np.zeros((layers, heads), np.float32)
    if best:
        values += np.random.default_rng(0).random((layers, heads)) * 0.3
        values[best] = 1.0
    return HeadScores.from_values(values, kv_heads, id="data/reader")


def pixels(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).astype(float)


def cells(png: bytes, layers: int, heads: int) -> np.ndarray:
    """Cut the map out of the picture and give the brightness of the middle of each cell: [layer, head]."""
    picture = pixels(png).mean(axis=-1)
    left, top, bottom = (round(side * head_map.DPI) for side in (head_map.LEFT, head_map.TOP, head_map.BOTTOM))
    right = round((head_map.GAP + head_map.BAR + head_map.RIGHT) * head_map.DPI)
    area = picture[top:-bottom, left:-right]
    rows = ((np.arange(layers) + 0.5) * area.shape[0] / layers).astype(int)
    columns = ((np.arange(heads) + 0.5) * area.shape[1] / heads).astype(int)
    return area[np.ix_(rows, columns)]


@pytest.mark.parametrize(("layers", "heads", "kv_heads"), SIZES)
def test_the_brightest_cell_is_the_best_head_with_layer_0_on_top(layers, heads, kv_heads):
    for best in [(0, heads - 1), (layers // 2, 0)]:
        shown = cells(head_map.render(scores(layers, heads, kv_heads, best)), layers, heads)
        assert np.unravel_index(shown.argmax(), shown.shape) == best


def test_brightness_follows_the_score():
    values = np.linspace(0, 1, 144, dtype=np.float32).reshape(12, 12)
    shown = cells(head_map.render(HeadScores.from_values(values, 12), mark=0), 12, 12).reshape(-1)
    assert (np.diff(shown) >= -1).all() and shown[-1] > shown[0] + 100


def ring_pixels(png: bytes) -> int:
    ring = [int(head_map.RING[at : at + 2], 16) for at in (1, 3, 5)]
    return int((np.abs(pixels(png) - ring).max(axis=-1) < 8).sum())


def test_as_many_heads_are_ringed_as_asked_and_none_that_scored_nothing():
    one, three, none = (ring_pixels(head_map.render(scores(12, 12, 4, (9, 4)), mark=mark)) for mark in (1, 3, 0))
    assert none == 0 and one > 100 and 2.4 * one < three < 3.6 * one
    assert ring_pixels(head_map.render(scores(12, 12, 4))) == 0


def test_heads_of_one_kv_head_stand_together():
    shared, alone = (pixels(head_map.render(scores(12, 12, kv), mark=0)).mean(axis=-1) for kv in (4, 12))
    row = round((head_map.TOP + 0.1) * head_map.DPI)
    lines = np.flatnonzero(shared[row] - alone[row] > 15)
    side = head_map.LARGEST * head_map.DPI
    expected = [head_map.LEFT * head_map.DPI + kv * 3 * side for kv in (1, 2, 3)]
    assert {min(range(3), key=lambda i: abs(expected[i] - line)) for line in lines} == {0, 1, 2}
    assert all(min(abs(line - edge) for edge in expected) <= 2 for line in lines)


def test_equal_scores_give_equal_bytes_and_the_unit_is_on_the_picture():
    plain = scores(12, 12, 4, (9, 4))
    mass = dataclasses.replace(plain, probe={"statistic": "mass"})
    assert head_map.render(plain) == head_map.render(plain) != head_map.render(mass)


def test_the_file_is_written_whole_or_not_at_all(tmp_path):
    file = head_map.draw(scores(12, 12, 4, (9, 4)), tmp_path / "new" / "map.png", title="a title", mark=3)
    assert file.read_bytes() == head_map.render(scores(12, 12, 4, (9, 4)), "a title", 3)
    with pytest.raises(OSError, match="could not be written"):
        head_map.draw(scores(12, 12, 4), tmp_path / "new")


def test_a_long_title_keeps_its_end_inside_the_picture():
    long, end = (pixels(head_map.render(scores(2, 2, 1), title=title)) for title in ("x/" * 99 + "reader", "reader"))
    assert long.shape == end.shape and (long[:, -10:] == 255).all()


@pytest.mark.parametrize("title", ["a $ sign, then $x^$", "读者", "scan\udcff"])
def test_any_title_can_be_drawn(title, recwarn):
    assert head_map.render(scores(2, 2, 1), title=title) and not recwarn.list


def test_it_needs_no_display_and_leaves_pyplot_alone(tmp_path):
    code = (
        "import sys; from headscope.report import head_map; from headscope.scores import HeadScores;"
        f"head_map.draw(HeadScores.from_values([[0.0, 1.0]], 1), {str(tmp_path / 'map.png')!r});"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    bare = {key: value for key, value in os.environ.items() if key != "DISPLAY"} | {"MPLBACKEND": "TkAgg"}
    subprocess.run(
        [sys.executable, "-c", code], check=True, env=bare | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    )
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
