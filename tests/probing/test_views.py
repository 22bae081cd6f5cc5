"""Views show what the heads look at, in pixels of the page."""

from typing import Any

import numpy as np
import pytest

from headscope.families import detect
from headscope.page.ocr import GivenWords
from headscope.page.source import bundled
from headscope.probing.reading import Reader
from headscope.probing.run import Settings, probe
from headscope.probing.views import head_groups, view_page
from headscope.scores import HeadScores


def test_the_best_heads_look_at_the_words_and_the_others_do_not(reader: tuple[Any, Any]) -> None:
    page = min(bundled("probe"), key=lambda page: len(page.text or ""))
    scores = probe(*reader, [page], ocr=GivenWords(), max_new_tokens=120)
    how = Settings(max_new_tokens=120)
    view = view_page(Reader(*reader, detect(reader[0].config), how.prompt, 120), page, scores, GivenWords(), how)
    assert view.image.shape[2] == 3 and view.attention.shape[2:] == (
        view.image.shape[0] // 28,
        view.image.shape[1] // 28,
    )
    assert "".join(token.text for token in view.tokens) == view.answer
    credited = [at for at, token in enumerate(view.tokens) if token.box]
    on_words = np.mean([view.on_word(at) for at in credited], axis=0)
    assert (
        on_words[view.groups.index("mean of the 14 best")] > 5 * on_words[view.groups.index("mean of the 130 others")]
    )


def test_cells_of_a_word_cover_its_box(reader: tuple[Any, Any]) -> None:
    page = min(bundled("probe"), key=lambda page: len(page.text or ""))
    scores = HeadScores.from_values(np.ones((12, 12)), kv_heads=4)
    how = Settings(max_new_tokens=120)
    view = view_page(Reader(*reader, detect(reader[0].config), how.prompt, 120), page, scores, GivenWords(), how)
    for token in view.tokens:
        if token.box:
            assert (
                min(cell[0] for cell in token.cells) <= token.box[0]
                and max(cell[2] for cell in token.cells) >= token.box[2]
            )
            assert (
                min(cell[1] for cell in token.cells) <= token.box[1]
                and max(cell[3] for cell in token.cells) >= token.box[3]
            )


@pytest.mark.parametrize(("layers", "heads"), [(1, 1), (2, 2), (12, 12)])
def test_groups_hold_every_head_once_beside_the_single_ones(layers: int, heads: int) -> None:
    scores = HeadScores.from_values(np.arange(layers * heads).reshape(layers, heads))
    groups = [group for label, group in head_groups(scores) if label.startswith("mean")]
    assert sorted(head for group in groups for head in group) == [
        (la, he) for la in range(layers) for he in range(heads)
    ]
