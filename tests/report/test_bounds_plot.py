"""The plot of bounds shows each branch, and the crossover where it is in view."""

import io

import numpy as np
from PIL import Image

import headscope as hs
from headscope.report.bounds_plot import LINES, draw, render

GREY = (102, 102, 102)


def counted(png: bytes, colour: tuple[int, ...]) -> int:
    pixels = np.asarray(Image.open(io.BytesIO(png)).convert("RGB"), dtype=int)
    return int((np.abs(pixels - colour).max(axis=-1) < 12).sum())


def test_each_branch_has_its_colour_and_the_same_points_give_the_same_bytes() -> None:
    account = hs.account("llama-3.1-8b")
    png = render(account.curve(), account.crossover_tokens, "a title")
    for _, colour, _, _ in LINES.values():
        assert counted(png, tuple(int(colour[at : at + 2], 16) for at in (1, 3, 5))) > 300
    assert render(account.curve(), account.crossover_tokens, "a title") == png


def test_the_crossover_is_drawn_where_it_is_in_view() -> None:
    points = hs.account("llama-3.1-8b").curve()
    shown, beyond, never = (counted(render(points, at), GREY) for at in (76068.6, 300_000.0, None))
    assert shown > beyond + 300 and abs(beyond - never) < 20


def test_it_is_written_whole(tmp_path) -> None:  # type: ignore[no-untyped-def]
    account = hs.account("qwen3-8b")
    path = draw(account.curve(), None, tmp_path / "new" / "a.png")
    assert Image.open(path).size[0] > 1000
