"""``headscope bench quality-budget`` from the command line, with the bundled model on one page."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from headscope.cli import quality
from headscope.gate.prose import Prose
from tests.cli.command import Outcome

Run = Callable[..., Outcome]
SMALL = [
    *("model=reader", "tests=[perplexity]", "pages.limit=1", "scored=4", "window=16", "timed_context=24"),
    *("calibration_tokens=48", "keep_act=[1]", "keep_kv=[1,.7]", "max_rises=[0,1e6]", "blocks=2", "repeats=1"),
    "device=cpu",
]


def test_the_bundled_model_is_scored_timed_and_chosen(run: Run, stand: Path) -> None:
    shown = run("bench", "quality-budget", *SMALL, "out=q.json")
    assert shown.code == 0 and shown.out.endswith("wrote q.json\n")
    found = json.loads((stand / "q.json").read_text())
    assert [(at["keep_act"], at["keep_kv"]) for at in found["grid"]] == [(1, 1), (1, 0.7)]
    assert found["model"]["id"] == "reader-22m" and found["context"] == 24 and found["protocol"]["pages"] == 1
    assert found["grid"][1]["perplexity"]["rise"] != 0 and found["budgets"][0]["keep_kv"] == 1
    assert found["select"]["pool"] == 7 and "commit" in found
    assert "over best single" in shown.out and "crossover at equal quality" in shown.out
    assert [path.name for path in stand.iterdir()] == ["q.json"]  # its records are gone once it is done


def test_thresholds_are_calibrated_on_text_that_is_not_scored() -> None:
    scored, held_out = quality.split(Prose("a.txt", "x" * 900 + "y" * 100))
    assert scored.text == "x" * 900 and held_out == "y" * 100 and scored.name == "a.txt"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["blocks=11"], "`blocks` must be a whole number from 1 to 10, got 11"),
        (["keep_kv=[2]"], "`keep_kv` must be a part that is kept, above 0 and at most 1; got 2"),
        (["tests=[pictures]"], "`tests` must have perplexity among them"),
        (["model=llama"], "`model` has no choice 'llama'"),
    ],
)
def test_a_mistake_is_one_line(run: Run, words: list[str], message: str) -> None:
    shown = run("bench", "quality-budget", *SMALL, *words)
    assert shown.code == 2 and message in shown.err
