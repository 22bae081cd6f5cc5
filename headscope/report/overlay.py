"""An overlay: one page in HTML, with the attention of each group of heads drawn over it."""

from __future__ import annotations

import base64
import io
import json
import math
from html import escape

import numpy as np
from PIL import Image

from headscope.page import Box
from headscope.report.view import PageView, TokenView

LONGEST = 1200  # pixels of a page's longer side in the report: enough to read by, small enough to send
PALE, STRONG = (250, 176, 5), (201, 20, 10)  # colours of weak and of strong attention
OPAQUE = 0.72  # of the strongest cell: print under it stays legible


def section(view: PageView, place: int) -> str:
    """Give a view's HTML: the answer's tokens to choose from, and a picture of the page for each group of heads."""
    across, down = _layout(len(view.tokens))
    first = next((i for i, token in enumerate(view.tokens) if token.box), 0)
    known = _known_words(view)
    figures = "\n".join(_figure(view, place, group, first, known) for group in range(len(view.groups)))
    return (
        f'<section class="card view" id="v{place}" data-across="{across}" data-down="{down}">\n'
        f"<h3>{escape(view.name)}</h3>\n{_answer(view, first)}\n{_chosen(view, place)}\n"
        f'<div class="heads">\n{figures}\n</div>\n</section>'
    )


def sheet(view: PageView, place: int) -> str:
    """Give the CSS rules that hold a view's pictures: the page once, and each group's attention."""
    pictures = {".paper": data_uri(_page(view.image), "webp")}
    pictures |= {f".g{group}": data_uri(_atlas(levels), "png") for group, levels in enumerate(_levels(view.attention))}
    return "\n".join(f"#v{place} {name} {{ background-image: url({uri}); }}" for name, uri in pictures.items())


def data_uri(content: bytes, kind: str) -> str:
    """Give an address that holds its own content."""
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def _answer(view: PageView, first: int) -> str:
    """Write the answer as buttons, one a token; those credited to a word are underlined."""
    buttons = "".join(_button(token, i == first) for i, token in enumerate(view.tokens))
    return f'<div class="answer" role="group" aria-label="tokens of the answer">{buttons or escape(view.answer)}</div>'


def _button(token: TokenView, pressed: bool) -> str:
    kind = ' class="credited"' if token.box else ""
    button = f'<button{kind} aria-pressed="{str(pressed).lower()}">{_visible(token.text)}</button>'
    return button + "<br>" * token.text.endswith("\n")


def _visible(text: str) -> str:
    """Escape a token's text; one that shows nothing gets a sign."""
    return escape(text if text.strip() else text.replace(" ", "␣") or "∅").replace("\n", "⏎")


def _figure(view: PageView, place: int, group: int, first: int, known: str) -> str:
    height, width = view.image.shape[:2]
    said = _said(view, group)
    lines = f'{known}<use class="chosen" href="#v{place}t{first}"/>'
    return (
        f'<figure><div class="paper" style="aspect-ratio: {width} / {height}">{_heat(view, group, first)}'
        f'<svg viewBox="0 0 {width} {height}" preserveAspectRatio="none">{lines}</svg></div>'
        f"<figcaption><b>{escape(view.groups[group])}</b>"
        f'<span class="said" data-said="{escape(json.dumps(said))}">{said[first] if said else ""}</span>'
        "</figcaption></figure>"
    )


def _heat(view: PageView, group: int, first: int) -> str:
    """Place a group's attention over the part of the page that the grid covers; --x and --y choose the token."""
    height, width = view.image.shape[:2]
    x0, y0, x1, y1 = view.extent
    across, down = _layout(len(view.tokens))
    style = (
        f"left: {100 * x0 / width:.3f}%; top: {100 * y0 / height:.3f}%; "
        f"width: {100 * (x1 - x0) / width:.3f}%; height: {100 * (y1 - y0) / height:.3f}%; "
        f"background-size: {100 * across}% {100 * down}%; "
        f"--x: {first % across / max(1, across - 1):.6f}; --y: {first // across / max(1, down - 1):.6f}"
    )
    return f'<div class="heat g{group}" style="{style}"></div>'


def _said(view: PageView, group: int) -> list[str]:
    """Say in words, for each token, how much of a group's attention lies where."""
    said = []
    for token, shown in enumerate(view.tokens):
        on_page = float(view.attention[group, token].sum(dtype=np.float64))
        on_word = f"{view.on_word(token)[group]:.1%} on the word, " if shown.cells else ""
        said.append(f"{on_word}{on_page:.1%} on the page")
    return said


def _known_words(view: PageView) -> str:
    """Outline every word that a token was credited to; a click chooses the first such token."""
    firsts: dict[Box, int] = {}
    for i, token in enumerate(view.tokens):
        if token.box:
            firsts.setdefault(token.box, i)
    return "".join(_rectangle(box, "known", f' data-token="{i}"') for box, i in firsts.items())


def _chosen(view: PageView, place: int) -> str:
    """Define each token's word and cells, once for all figures of a view."""
    shapes = (
        f'<g id="v{place}t{i}">{"".join(_rectangle(cell, "cell") for cell in token.cells)}'
        f"{_rectangle(token.box, 'word') if token.box else ''}</g>"
        for i, token in enumerate(view.tokens)
    )
    return f'<svg width="0" height="0" style="position: absolute"><defs>{"".join(shapes)}</defs></svg>'


def _rectangle(box: Box, kind: str, more: str = "") -> str:
    x0, y0, x1, y1 = box
    return f'<rect class="{kind}"{more} x="{x0:.6g}" y="{y0:.6g}" width="{x1 - x0:.6g}" height="{y1 - y0:.6g}"/>'


def _page(image: np.ndarray) -> bytes:
    page, file = Image.fromarray(image), io.BytesIO()
    page.thumbnail((LONGEST, LONGEST))
    page.save(file, "WEBP", quality=80, method=4)
    return file.getvalue()


def _levels(attention: np.ndarray) -> np.ndarray:
    """Turn attention into levels, uint8 [group, token, row, column].

    All groups of a token share one scale, so that a weak group looks weak; the root keeps weak ones visible at all.
    """
    strongest = attention.max(axis=(0, 2, 3), keepdims=True, initial=0.0)
    shares = np.divide(attention, strongest, out=np.zeros(attention.shape), where=strongest > 0)
    return np.round(255 * np.sqrt(shares)).astype(np.uint8)


def _layout(tokens: int) -> tuple[int, int]:
    """Give the columns and rows of an atlas: near square, since browsers limit both sides of a picture."""
    across = max(1, math.ceil(math.sqrt(tokens)))
    return across, max(1, math.ceil(tokens / across))


def _atlas(levels: np.ndarray) -> bytes:
    """Lay the grids of all tokens, uint8 [token, row, column], side by side in a PNG whose palette carries opacity."""
    tokens, rows, columns = levels.shape
    across, down = _layout(tokens)
    cells = np.zeros((down * across, rows, columns), np.uint8)
    cells[:tokens] = levels
    atlas = cells.reshape(down, across, rows, columns).swapaxes(1, 2).reshape(down * rows, across * columns)
    steps = np.arange(256)[:, None] / 255
    picture, file = Image.fromarray(atlas).convert("P"), io.BytesIO()
    picture.putpalette(np.round(np.array(PALE) * (1 - steps) + np.array(STRONG) * steps).astype(np.uint8).tobytes())
    picture.save(file, "PNG", transparency=np.round(255 * OPAQUE * steps).astype(np.uint8).tobytes())
    return file.getvalue()
