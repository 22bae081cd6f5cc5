"""`headscope generate` prints one answer, on a full or a compressed cache."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headscope.resources import find
from tests.cli.command import Outcome

Run = Callable[..., Outcome]
PAGE = str(find("data", "pages", "probe", "011.png"))
GENERATE = ("generate", "model=reader", f"image={PAGE}")


def test_the_answer_comes_with_its_speed_and_the_bytes_of_its_cache(run: Run, stand: Path) -> None:
    shown = run(*GENERATE)
    assert (shown.code, shown.err) == (0, "")
    assert "power" in shown.out and "tokens/s" in shown.out and "100.0 % of the full cache's" in shown.out


def test_a_budget_file_and_a_planned_budget_keep_less(run: Run, stand: Path) -> None:
    assert run("allocate", "model=reader", "per_head=48", "window=16", "prompt=74", "out=b.json").code == 0
    for kept in (("budget=b.json",), ("per_head=48", "window=16", "select=text_guided")):
        shown = run(*GENERATE, *kept, "max_new_tokens=4")
        assert shown.code == 0 and "bytes kept" in shown.out and "100.0 %" not in shown.out


def test_several_pictures_are_asked_about_together(run: Run, stand: Path) -> None:
    shown = run("generate", "model=reader", f"image=[{PAGE},{PAGE}]", "prompt=Read picture 2.", "max_new_tokens=4")
    assert shown.code == 0 and "answer 4 tokens" in shown.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("budget=gone.json",), "gone.json"),
        (("draft=fast",), "`draft` must be one of none, got 'fast'"),
        (("per_head=48", "window=64"), "`window`"),
        (("image=gone.png",), "gone.png"),
    ],
)
def test_a_mistake_is_one_line(run: Run, stand: Path, words: tuple[str, ...], message: str) -> None:
    shown = run(*GENERATE, *words)
    assert (shown.code, shown.err.count("\n")) == (2, 1), shown.err
    assert message in shown.err
