"""The budget map: what both halves of the picture show, read back from its pixels."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from headscope.budget import Budget
from headscope.report import budget_map, head_map
from headscope.scores import HeadScores

SIZES = [(12, 12, 4), (28, 28, 4), (32, 32, 32), (80, 64, 8), (2, 2, 1)]


def scores(layers: int, heads: int, kv_heads: int, best: tuple[int, int] = (1, 1)) -> HeadScores:
    values = np.zeros((layers, heads), np.float32)
    values[best] = 1.0
    return HeadScores.from_values(values, kv_heads, id="data/reader")


def maps(png: bytes, layers: int, heads: int, kv_heads: int) -> tuple[np.ndarray, np.ndarray]:
    """Cut both maps out and give the brightness in a corner of each cell: [layer, head] and [layer, kv]."""
    picture = np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).astype(float).mean(axis=-1)
    left, top, bottom = (round(side * head_map.DPI) for side in (head_map.LEFT, head_map.TOP, head_map.BOTTOM))
    right = round((head_map.GAP + head_map.BAR + head_map.RIGHT) * head_map.DPI)
    half = picture.shape[1] // 2
    cut = [picture[top:-bottom, at + left : at + half - right] for at in (0, half)]
    found = []
    for area, columns in zip(cut, (heads, kv_heads), strict=True):
        down = ((np.arange(layers) + 0.25) * area.shape[0] / layers).astype(int)
        across = ((np.arange(columns) + 0.25) * area.shape[1] / columns).astype(int)
        found.append(area[np.ix_(down, across)])
    return found[0], found[1]


@pytest.mark.parametrize(("layers", "heads", "kv_heads"), SIZES)
def test_each_half_is_brightest_where_its_numbers_are_largest_with_layer_0_on_top(layers, heads, kv_heads):
    kept = np.full((layers, kv_heads), 32)
    kept[layers - 1, 0] = 900
    png = budget_map.render(scores(layers, heads, kv_heads, (0, heads - 1)), Budget(kept, 32))
    left, right = maps(png, layers, heads, kv_heads)
    assert np.unravel_index(left.argmax(), left.shape) == (0, heads - 1)
    assert np.unravel_index(right.argmax(), right.shape) == (layers - 1, 0)


def test_brightness_follows_the_tokens_kept():
    kept = np.linspace(32, 512, 48).astype(int).reshape(12, 4)
    _, right = maps(budget_map.render(scores(12, 12, 4), Budget(kept, 32)), 12, 12, 4)
    assert (np.diff(right.reshape(-1)) >= -1).all() and right[-1, -1] > right[0, 0] + 100


def test_tokens_are_written_into_cells_that_have_room(monkeypatch):
    written = []
    monkeypatch.setattr(budget_map, "_number", lambda axes, kept: written.append(kept.shape))
    for layers, heads, kv_heads in SIZES:
        budget_map.render(scores(layers, heads, kv_heads), Budget(np.full((layers, kv_heads), 40), 32))
    assert written == [(12, 4), (28, 4), (2, 1)]


def test_the_same_scores_and_budget_give_the_same_bytes_and_the_prompt_is_on_the_picture():
    made = scores(12, 12, 4)
    plain, told = (Budget(np.full((12, 4), 40), 32, prompt) for prompt in (None, 99))
    assert budget_map.render(made, plain) == budget_map.render(made, plain) != budget_map.render(made, told)


def test_the_file_is_written_whole_or_not_at_all(tmp_path):
    made, budget = scores(2, 2, 1), Budget([[40], [50]], 32)
    file = budget_map.draw(made, budget, tmp_path / "new" / "map.png", "a title")
    assert file.read_bytes() == budget_map.render(made, budget, "a title")
    with pytest.raises(OSError, match="could not be written"):
        budget_map.draw(made, budget, tmp_path / "new")


def test_a_budget_of_another_model_is_refused():
    with pytest.raises(ValueError, match="`budget`: expected 12 layers x 4 KV heads, found 2 layers x 1 KV heads"):
        budget_map.render(scores(12, 12, 4), Budget([[40], [50]], 32))
