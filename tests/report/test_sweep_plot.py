"""The sweep's plot shows every line it is given."""

import io
from typing import Any

import numpy as np
from PIL import Image

from headscope.report.sweep_plot import render


def point(rule: str, per_head: int, accuracy: float, seed: int | None = None) -> dict[str, Any]:
    settings = {} if seed is None else {"seed": seed}
    interval = (accuracy - 0.05, accuracy + 0.05)
    shared = {
        "select": "observation_window",
        "kv_bytes": per_head * 1024,
        "interval": interval,
        "rule_settings": settings,
    }
    return {"rule": rule, "per_head": per_head, "accuracy": accuracy, **shared}


def has(png: bytes, colour: tuple[int, int, int]) -> bool:
    pixels = np.asarray(Image.open(io.BytesIO(png)).convert("RGB"), dtype=int)
    return bool((np.abs(pixels - colour).max(axis=-1) < 12).sum() > 40)


def test_each_rule_has_a_line_of_its_own_colour() -> None:
    points = [point("full", 110, 0.95), point("sparsemm", 64, 0.9), point("sparsemm", 32, 0.4)]
    one = render(points)
    two = render([*points, *(point("random", 64, 0.2 + seed / 20, seed) for seed in range(3))])
    blue, vermilion = (0, 114, 178), (213, 94, 0)
    assert has(one, blue) and has(two, blue) and has(two, vermilion) and not has(one, vermilion)
    assert render(points) == one


def test_the_full_cache_alone_can_be_drawn() -> None:
    assert Image.open(io.BytesIO(render([point("full", 110, 0.95)]))).size[0] > 600
