"""The report's page: self-contained, escaped, and true to what it was given."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import re
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from headscope.report import PageView, TokenView, write
from headscope.report.page import render_page
from headscope.scores import FailedPage, HeadScores

EVIL = "<script>alert('&\"')</script>"


def scores(**parts: object) -> HeadScores:
    values = np.arange(24, dtype=np.float32).reshape(4, 6) / 7
    return dataclasses.replace(HeadScores.from_values(values, 2, id="data/reader"), **parts)


def view(count: int = 5, name: str = "probe/000.png", **changes: object) -> PageView:
    """A page of 3 x 4 cells of 10 pixels; token i was read in cell i, and its best head looks there above all."""
    attention = np.full((2, count, 3, 4), 0.01, np.float32)
    places = [(i % 12 // 4, i % 4) for i in range(count)]
    boxes = [(x * 10.0, y * 10.0, x * 10.0 + 10, y * 10.0 + 10) for y, x in places]
    for i, place in enumerate(places):
        attention[0, i][place] = 0.6
    shown = tuple(TokenView(f"t{i}", box, (box,)) for i, box in enumerate(boxes))
    image = np.full((30, 40, 3), 255, np.uint8)
    answer = "".join(token.text for token in shown)
    made = PageView(name, image, answer, shown, attention, ("best head 3.5", "all others"))
    return dataclasses.replace(made, **changes)


class Addresses(HTMLParser):
    """Collects what a browser would fetch, and the text that it would show."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.text: list[str] = []
        self.tags: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.found += [
            value for key, value in attributes if key in ("src", "href", "srcset", "data", "poster", "action")
        ]
        self.found += re.findall(r"url\(([^)]*)\)", dict(attributes).get("style") or "")

    def handle_data(self, data):
        self.text.append(data)
        self.found += re.findall(r"url\(([^)]*)\)|@import", data)


def test_the_page_fetches_nothing(tmp_path):
    html = write(tmp_path / "report.html", scores(), [view(), view()]).read_text(encoding="utf-8")
    addresses = Addresses(html).found
    assert len(addresses) > 6 and all(address.startswith(("data:image/", "#v")) for address in addresses)
    assert not re.search(r"https?:|//[a-z]+\.", re.sub(r"base64,[A-Za-z0-9+/=]+", "", html))
    assert "$" not in re.sub(r"base64,[A-Za-z0-9+/=]+", "", html)


def test_whatever_pages_and_models_are_called_is_only_text():
    tokens = (TokenView(EVIL, (0, 0, 10, 10)), *view().tokens[1:])
    shown = view(name=EVIL, tokens=tokens, groups=(EVIL, EVIL))
    named = scores(probe={"prompt": EVIL, EVIL: EVIL}, failed=(FailedPage(EVIL, EVIL),))
    named = dataclasses.replace(named, model=named.model | {"id": EVIL})
    html = render_page(named, [shown])
    assert EVIL not in html and Addresses(html).tags.count("script") == 1
    assert "".join(Addresses(html).text).count(EVIL) >= 8


def atlas(html: str, group: int) -> np.ndarray:
    """Read a group's attention back: the opacity of each cell, [row, column] of all tokens side by side."""
    found = re.search(rf"#v0 \.g{group} {{ background-image: url\(data:image/png;base64,([^)]*)\)", html)
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(found[1]))).convert("RGBA"))[..., 3]


@pytest.mark.parametrize("tokens", [1, 5, 12, 50])
def test_each_token_shows_its_own_attention(tokens):
    html = render_page(scores(), [view(tokens)])
    across, down = (int(re.search(rf'data-{side}="(\d+)"', html)[1]) for side in ("across", "down"))
    best = atlas(html, 0)
    assert best.shape == (down * 3, across * 4) and across * down >= tokens
    for i in range(tokens):
        y, x = i // across * 3, i % across * 4
        tile = best[y : y + 3, x : x + 4]
        assert np.unravel_index(tile.argmax(), tile.shape) == (i % 12 // 4, i % 4)


def test_groups_share_one_scale_so_that_weak_heads_look_weak():
    html = render_page(scores(), [view()])
    assert atlas(html, 0).max() == 184  # 72 % of 255: the strongest cell of a token
    assert 0 < atlas(html, 1).max() < 0.2 * 184  # a sixtieth, under the root


def test_captions_say_how_much_lies_on_the_word():
    html = render_page(scores(), [view()])
    said = [json.loads(unescape(found)) for found in re.findall(r'data-said="([^"]*)"', html)]
    assert [one[2] for one in said] == ["60.0% on the word, 71.0% on the page", "1.0% on the word, 12.0% on the page"]


def test_cells_are_found_on_a_padded_page():
    """The grid is a square of 4 x 4 cells around a page of 40 x 20 pixels: a row of padding above and below."""
    attention = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    token = TokenView("a", (10, 0, 20, 10), ((10, 0, 20, 10),))
    image = np.zeros((20, 40, 3), np.uint8)
    shown = PageView("a.png", image, "a", (token,), attention, ("all",), area=(0, -10, 40, 30))
    assert shown.on_word(0).tolist() == [5.0]
    assert "top: -50.000%; width: 100.000%; height: 200.000%" in render_page(scores(), [shown])


def test_the_table_lists_the_best_heads_with_their_intervals():
    top = [
        {"layer": 3, "head": 5, "score": 3.29, "interval": [2.5, 4.0]},
        {"layer": 3, "head": 4, "score": 3.1, "interval": None},
    ]
    html = render_page(scores(summary={"split_half": 0.973, "share_top_5_percent": None, "top": top}))
    rows = [re.findall(r"<td>([^<]*)</td>", row) for row in re.findall(r"<tr>(<td>.*?)</tr>", html)]
    assert len(rows) == 14
    assert rows[0] == ["1", "3", "5", "1", "3.286", "2.5 – 4"] and rows[1] == ["2", "3", "4", "1", "3.143", "–"]
    assert "0.973" in html and "best 5 %" not in html


def test_a_token_without_anything_to_see_can_still_be_chosen():
    tokens = tuple(TokenView(text) for text in (" ", "\n", "", "a\n"))
    text = "".join(Addresses(render_page(scores(), [view(4, tokens=tokens)])).text)
    assert all(sign in text for sign in ("␣", "⏎", "∅", "a⏎"))


def test_a_page_without_an_answer_and_a_report_without_pages():
    empty = view(1, tokens=(), answer="", attention=np.zeros((2, 0, 3, 4), np.float32))
    assert "probe/000.png" in render_page(scores(), [empty])
    assert "Heads at work" not in render_page(scores())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"image": np.zeros((3, 4), np.uint8)}, "`image` must be uint8"),
        ({"image": np.zeros((3, 4, 3), np.float32)}, "`image` must be uint8"),
        ({"groups": ("one",)}, r"`attention` must be \[1 groups, 5 tokens, rows, columns\]; got \[2, 5, 3, 4\]"),
        ({"attention": np.full((2, 5, 3, 4), np.nan, np.float32)}, "`attention` must be finite"),
    ],
)
def test_a_view_that_does_not_fit_is_refused(changes, said):
    with pytest.raises(ValueError, match=said):
        view(**changes)


def test_a_name_that_is_not_unicode_is_still_written(tmp_path):
    file = write(tmp_path / "report.html", scores(), [view(name="scan\udcff.png")])
    assert "scan?.png" in file.read_text(encoding="utf-8")
