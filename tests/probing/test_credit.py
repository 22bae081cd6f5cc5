"""Words become cells, and tokens with a word in view get credit (CASES B10, B19, B23)."""

import torch

from headscope.families import Axis, Grid, Picture
from headscope.page import Word
from headscope.probing.align import Answer
from headscope.probing.credit import credit, word_cells


def picture(start: int = 5, rows: int = 20, columns: int = 20, side: int = 28) -> Picture:
    positions = torch.arange(start, start + rows * columns).reshape(rows, columns)
    grid = Grid(Axis.proportional(rows * side, rows), Axis.proportional(columns * side, columns), positions)
    return Picture(grid, None, (start, start + rows * columns))


def with_base() -> Picture:
    fine = picture(start=6, rows=4, columns=4).fine
    base = Grid(Axis.proportional(112, 1), Axis.proportional(112, 1), torch.tensor([[5]]))
    return Picture(fine, base, (5, 22))


def test_boxes_over_the_border_are_clipped_first() -> None:
    boxes = [(-5, -3, 40, 20), (600, 460, 700, 500), (-40, -40, -5, -5), (550, 550, 900, 900)]
    words = [Word.from_box("x", box) for box in boxes]
    assert [place.tolist() for place in word_cells(words, picture(start=0))] == [[0, 1], [], [], [399]]


def test_a_box_that_ends_on_a_cells_edge_takes_no_further_cell() -> None:
    words = [Word.from_box("x", box) for box in [(0, 0, 28, 28), (28, 28, 56, 56), (10, 10, 10, 10)]]
    assert [place.tolist() for place in word_cells(words, picture(start=0))] == [[0], [21], [0]]


def test_the_thumbnail_counts_only_when_asked() -> None:
    word = [Word.from_box("x", (0, 0, 30, 10))]
    assert word_cells(word, with_base())[0].tolist() == [6, 7]
    assert word_cells(word, with_base(), "both")[0].tolist() == [5, 6, 7]
    assert word_cells(word, picture(), "both")[0].tolist() == [5, 6]


def test_a_word_that_was_cropped_away_credits_nothing() -> None:
    words = [Word.from_box("gone", (700, 0, 800, 20)), Word.from_box("here", (0, 0, 20, 20))]
    answer = Answer("gone here", ("gone", " here"), ((0, 4), (4, 9)))
    due = credit(answer, words, word_cells(words, picture()))
    assert (due.tokens, due.words, [cells.tolist() for cells in due.cells]) == ([1], [1], [[5]])


def test_the_published_rule_is_a_choice() -> None:
    words = [Word.from_box("TOTAL 100", (0, 0, 20, 20)), Word.from_box("TOTAL 200", (0, 30, 20, 50))]
    answer = Answer("TOTAL 200", ("TOTAL", " 200"), ((0, 5), (5, 9)))
    places = word_cells(words, picture())
    assert credit(answer, words, places, "paper").words == [1]
    assert credit(answer, words, places, "aligned").words == [1]
    assert credit(Answer("OT", ("OT",), ((0, 2),)), words, places, "aligned").tokens == []
