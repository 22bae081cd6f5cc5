"""Answers in a batch are those of each page alone."""

from typing import Any

import numpy as np
import pytest

from headscope.evaluate.answers import answer_pages
from headscope.page.image import decode
from headscope.page.source import bundled
from tests.families.tiny import TINY


def test_pages_of_unequal_sizes_are_answered_as_if_alone(
    reader: tuple[Any, Any], caplog: pytest.LogCaptureFixture
) -> None:
    images = [decode(page.source) for page in sorted(bundled("probe"), key=lambda page: len(page.text or ""))[:3]]
    together = answer_pages(*reader, images, "Read the text.", max_new_tokens=40)
    alone = [answer_pages(*reader, [image], "Read the text.", max_new_tokens=40)[0] for image in images]
    assert together == alone and all(together)
    assert not caplog.records


@pytest.mark.parametrize("family", sorted(TINY))
def test_every_family_answers_in_batches(family: str) -> None:
    model, processor = TINY[family]()
    images = [np.full((56, 84, 3), value, np.uint8) for value in (10, 200)]
    assert len(answer_pages(model, processor, images, "Read the text.", max_new_tokens=3, batch=2)) == 2


@pytest.mark.parametrize("name", ["batch", "max_new_tokens"])
def test_a_size_below_one_is_refused(reader: tuple[Any, Any], name: str) -> None:
    with pytest.raises(ValueError, match=f"`{name}` must be at least 1, got 0"):
        answer_pages(*reader, [np.zeros((56, 84, 3), np.uint8)], "Read the text.", **{name: 0})
