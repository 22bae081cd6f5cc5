"""Views: pages as the best and the average heads read them, for the report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from headscope.families import Grid
from headscope.page import Box, Page, Word
from headscope.page.image import decode
from headscope.probing.credit import credit, word_cells
from headscope.probing.reading import Reader, Reading
from headscope.probing.rows import watch_rows
from headscope.probing.run import Engine, Settings, read_answer
from headscope.report.view import PageView, TokenView
from headscope.scores import HeadScores

SINGLE = 3  # heads shown one by one


class Maps:
    """Visits attention rows and keeps, for groups of heads, what falls on the cells of a grid."""

    def __init__(self, groups: Sequence[Sequence[tuple[int, int]]], positions: Tensor, rows: int) -> None:
        """Take the (layer, head) pairs of each group, the cells' positions [row, column], and the number of rows."""
        self._groups = groups
        self._positions = positions
        self.attention = torch.zeros(len(groups), rows, *positions.shape)

    def __call__(self, layer: int, first: int, attention: Tensor) -> None:
        """Add rows `first` and on of a layer: attention float32 [head, row, key]."""
        flat = self._positions.reshape(-1).to(attention.device)
        on_cells = attention[..., flat].cpu().unflatten(-1, self._positions.shape)
        for group, heads in enumerate(self._groups):
            if own := [head for at, head in heads if at == layer]:
                part = on_cells[own].sum(dim=0) / len(heads)
                self.attention[group, first : first + attention.shape[1]] += part


def view_page(reader: Reader, page: Page, scores: HeadScores, ocr: Engine, how: Settings) -> PageView:
    """Let the model read a page once more and show where its best heads, and all others on average, looked.

    Raises PageError for a page that cannot be read.
    """
    image = decode(page.source, name=page.name)
    words = ocr(page, image)
    reading = read_answer(reader, page, image, words, how)
    grid = _shown_grid(reading)
    groups = head_groups(scores)
    tokens = list(range(len(reading.ids)))
    maps = Maps([heads for _, heads in groups], grid.positions, len(tokens))
    if tokens:
        watch_rows(reader.decoder, reading.arguments(reader.decoder), reading.rows(tokens), maps)
    return PageView(
        name=page.name,
        image=image,
        answer=reading.answer.text,
        tokens=_tokens(reading, words, grid, how),
        attention=maps.attention.numpy(),
        groups=tuple(label for label, _ in groups),
        area=_area(grid),
    )


def head_groups(scores: HeadScores) -> list[tuple[str, list[tuple[int, int]]]]:
    """Name the groups shown: the best heads one by one, the best tenth together, and all others."""
    tenth = max(SINGLE, round(scores.layers * scores.heads / 10))
    best = [(layer, head) for layer, head, _ in scores.top(tenth)]
    others = [
        (layer, head) for layer in range(scores.layers) for head in range(scores.heads) if (layer, head) not in best
    ]
    single = [(f"head {layer}.{head}", [(layer, head)]) for layer, head in best[:SINGLE]]
    together = [(f"mean of the {len(best)} best", best), (f"mean of the {len(others)} others", others)]
    return [*single, *((label, heads) for label, heads in together if heads)]


def _tokens(reading: Reading, words: Sequence[Word], grid: Grid, how: Settings) -> tuple[TokenView, ...]:
    due = credit(reading.answer, words, word_cells(words, reading.picture), how.match)
    boxes: dict[int, Any] = {token: words[word].box for token, word in zip(due.tokens, due.words, strict=True)}
    return tuple(
        TokenView(reading.answer.text[start:stop], boxes.get(token), _cell_boxes(grid, boxes.get(token)))
        for token, (start, stop) in enumerate(reading.answer.spans)
    )


def _cell_boxes(grid: Grid, box: Box | None) -> tuple[Box, ...]:
    """Give the page's pixels that each cell of a box reads."""
    if box is None:
        return ()
    rows = [grid.y.stretch(row) for row in grid.y.span(box[1], box[3])]
    columns = [grid.x.stretch(column) for column in grid.x.span(box[0], box[2])]
    return tuple((left, top, right, bottom) for top, bottom in rows for left, right in columns)


def _shown_grid(reading: Reading) -> Grid:
    """Give the fine grid, or the thumbnail's where nothing of the fine one is left."""
    picture = reading.picture
    return picture.base if picture.base is not None and not picture.fine.positions.numel() else picture.fine


def _area(grid: Grid) -> Box:
    rows, columns = grid.positions.shape
    (left, _), (_, right) = grid.x.stretch(0), grid.x.stretch(columns - 1)
    (top, _), (_, bottom) = grid.y.stretch(0), grid.y.stretch(rows - 1)
    return left, top, right, bottom
