"""Prompts of many small pictures hold lines of the pages, whole, and are the same in every run."""

from __future__ import annotations

import numpy as np
import pytest

from headscope.evaluate.strips import strips
from headscope.page import Page
from headscope.page.source import bundled


def test_prompts_have_8_to_16_pictures_of_one_size_with_lines_of_the_pages() -> None:
    pages = bundled("evaluation")[:20]
    made = strips(pages, 18)
    assert [len(prompt.lines) for prompt in made] == [*range(8, 17)] * 2
    known = {line for page in pages for line in (page.text or "").split("\n")}
    for prompt in made:
        assert set(prompt.lines) <= known
        assert all(image.shape == (56, 336, 3) and image.std() > 5 for image in prompt.images)
    assert {len(set(prompt.lines)) == len(prompt.lines) for prompt in made} == {True}


def test_prompts_are_the_same_again_and_others_for_another_seed() -> None:
    pages = bundled("evaluation")[:10]
    one, again, other = strips(pages, 2), strips(pages, 2), strips(pages, 2, seed=1)
    assert [prompt.lines for prompt in one] == [prompt.lines for prompt in again] != [prompt.lines for prompt in other]
    assert all(np.array_equal(*pair) for pair in zip(one[0].images, again[0].images, strict=True))


def test_a_line_stands_whole_on_its_strip() -> None:
    ink = []
    for prompt in strips(bundled("evaluation")[:10], 3):
        for image in prompt.images:
            edge = np.abs(image.astype(int) - image[0, 0]).sum(-1) > 150
            ink.append(bool(edge[0].any() or edge[-1].any() or edge[:, 0].any() or edge[:, -1].any()))
    assert sum(ink) <= len(ink) // 10  # a graded paper may differ at the edge


def test_pages_without_boxes_are_refused() -> None:
    with pytest.raises(ValueError, match="`pages` must have 16 lines that fit on a strip"):
        strips([Page("a", bundled("evaluation")[0].source, text="one\ntwo")], 1)
