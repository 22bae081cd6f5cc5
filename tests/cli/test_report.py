"""The verb ``report``: a score file drawn, and never another model's heads shown as this one's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from headscope.cli.model import Model
from headscope.scores import HeadScores
from tests.cli.command import Outcome

Run = Callable[..., Outcome]


def test_a_score_file_becomes_a_head_map_and_a_page(run: Run, stand: Path) -> None:
    HeadScores.from_values(np.eye(3)).save(stand / "mine.json")
    shown = run("report", "scores=mine.json")
    assert (shown.code, shown.out) == (0, "wrote mine.html, mine.png\n")
    assert sorted(path.name for path in stand.iterdir()) == ["mine.html", "mine.json", "mine.png"]


def test_with_a_model_the_page_shows_its_heads_at_work(run: Run, stand: Path) -> None:
    HeadScores.from_values(np.ones((12, 12)), kv_heads=4).save(stand / "mine.json")
    assert run("report", "scores=mine.json", "model=reader", "ocr=words", "report_pages=1", "out=x.html").code == 0
    assert "Heads at work" in (stand / "x.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2, 3), "expected 12 layers x 12 heads with 4 KV heads, found 2 layers x 3 heads"),
        ((12, 4), "expected a score for each of the 12 query heads of a layer, found one for each of its 4 KV heads"),
    ],
)
@pytest.mark.parametrize("verb", [["report", "ocr=words"], ["evaluate", "ablation"]])
def test_scores_of_other_heads_are_refused_before_the_model_is_loaded(
    run: Run, stand: Path, monkeypatch: pytest.MonkeyPatch, verb: list[str], shape: tuple[int, int], message: str
) -> None:
    monkeypatch.setattr(Model, "load", lambda *_: pytest.fail("loaded"))
    HeadScores.from_values(np.ones(shape)).save(stand / "other.json")
    shown = run(*verb, "model=reader", "scores=other.json", "out=x.html")
    assert (shown.code, shown.err.count("\n")) == (2, 1)
    assert message in shown.err
    assert [path.name for path in stand.iterdir()] == ["other.json"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["scores=gone.json"], "gone.json"),
        (["scores=bad.png"], "`bad.png`: expected head scores"),
        (["scores=mine.json", "report_pages=-1"], "`report_pages` must be at least 0, got -1"),
        (["scores=mine.json", "out=."], "must be a file"),
        (["scores=mine.json", "out=mine.json"], "each file must have a path of its own, mine.json was given for two"),
        (["scores=mine.json", "out=x.png"], "each file must have a path of its own, x.png was given for two"),
    ],
)
def test_a_mistake_is_one_line(run: Run, stand: Path, words: list[str], message: str) -> None:
    HeadScores.from_values(np.eye(3)).save(stand / "mine.json")
    (stand / "bad.png").write_text("no picture")
    shown = run("report", *words)
    assert (shown.code, shown.err.count("\n")) == (2, 1)
    assert message in shown.err
    assert sorted(path.name for path in stand.iterdir()) == ["bad.png", "mine.json"]
