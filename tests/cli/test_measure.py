"""The verbs that measure refuse what they cannot do, in one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command import Outcome

Run = Callable[..., Outcome]
ABLATION = ("evaluate", "ablation", "model=reader", "pages.limit=1")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*ABLATION, "sizes=[0]"), "`sizes` must silence at least one head"),
        ((*ABLATION, "draws=-1"), "`draws` must be at least 0, got -1"),
        ((*ABLATION, "batch=0"), "`batch` must be at least 1, got 0"),
        ((*ABLATION, "max_new_tokens=0"), "`max_new_tokens` must be at least 1, got 0"),
        ((*ABLATION, "device=nowhere"), "`device` must be one that torch can use here"),
        (("bench", "probe", "limit=0"), "`limit` must be a whole number of pages, at least 1"),
        (("bench", "probe", "device=nowhere"), "`device` must be one that torch can use here"),
        (("bench", "probe", "device=cpu", "memory=true"), "`memory` is measured on a GPU only, got device cpu"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(run: Run, stand: Path, words: tuple[str, ...], message: str) -> None:
    shown = run(*words, "out=x.json")
    assert (shown.code, shown.err.count("\n")) == (2, 1), shown.err
    assert message in shown.err
    assert list(stand.iterdir()) == []
