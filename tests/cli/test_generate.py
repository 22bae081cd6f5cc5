"""`headscope generate` prints one answer, on a full or a compressed cache."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headscope.budget import Budget
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


def test_what_a_fixed_budget_loses_on_a_shorter_prompt_is_said(run: Run, stand: Path) -> None:
    assert run("allocate", "model=reader", "per_head=60", "window=16", "prompt=400", "out=b.json").code == 0
    shown = run(*GENERATE, "budget=b.json", "max_new_tokens=2")
    assert shown.code == 0 and "prompt 74 tokens" in shown.out
    kept = Budget.load("b.json").kept
    assert (
        f"\nlost: {int((kept - 74).clamp_min(0).sum())} of the {60 * 48} tokens asked for find no place\n" in shown.out
    )
    assert run("allocate", "model=reader", "per_head=60", "window=16", "prompt=74", "out=b.json").code == 0
    assert "lost" not in run(*GENERATE, "budget=b.json", "max_new_tokens=2").out


def test_several_pictures_are_asked_about_together(run: Run, stand: Path) -> None:
    shown = run("generate", "model=reader", f"image=[{PAGE},{PAGE}]", "prompt=Read picture 2.", "max_new_tokens=4")
    assert shown.code == 0 and "answer 4 tokens" in shown.out


@pytest.mark.parametrize("words", [("per_head=48",), ("gamma=auto", "rule=uniform"), ("budget=b.json", "gamma=3")])
def test_a_draft_gives_the_same_answer_with_its_acceptance_and_speed(
    run: Run, stand: Path, words: tuple[str, ...]
) -> None:
    if "budget=b.json" in words:
        assert run("allocate", "model=reader", "per_head=48", "window=16", "out=b.json").code == 0
    plain, shown = (
        run(*GENERATE, "dtype=float32"),
        run(*GENERATE, "dtype=float32", "draft=head_budget", "window=16", *words),
    )
    assert shown.code == 0, shown.err
    assert shown.out.split("\n\nprompt")[0] == plain.out.split("\n\nprompt")[0]
    assert "draft head_budget, gamma" in shown.out and "tokens accepted" in shown.out and "tokens/s" in shown.out


@pytest.mark.parametrize("draft", ["text_guided", "prompt_lookup"])
def test_other_drafts_take_what_they_know_of_a_budget(run: Run, stand: Path, draft: str) -> None:
    shown = run(*GENERATE, f"draft={draft}", "per_head=48", "max_new_tokens=4")
    assert shown.code == 0 and f"draft {draft}, gamma 9" in shown.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("budget=gone.json",), "gone.json"),
        (("draft=fast",), "`draft` has no choice 'fast'; give one of early_exit, head_budget, none"),
        (("draft=early_exit", "gamma=16"), "`gamma` must be a whole number from 1 to 15"),
        (("draft=text_guided", "per_head=8", "draft.window=9"), "at least the window of 32"),
        (("draft=early_exit", "draft.layers=12"), "`layers` must be a whole number from 1 to 11"),
        (("per_head=48", "window=64"), "`window`"),
        (("image=gone.png",), "gone.png"),
    ],
)
def test_a_mistake_is_one_line(run: Run, stand: Path, words: tuple[str, ...], message: str) -> None:
    shown = run(*GENERATE, *words)
    assert (shown.code, shown.err.count("\n")) == (2, 1), shown.err
    assert message in shown.err
