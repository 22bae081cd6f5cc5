"""``headscope bytes calibrate`` and ``headscope bench crossing`` from the command line, on a stand-in machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from headscope.bench import calibrate, crossing
from tests.bench.stand_in import machine
from tests.cli.command import Outcome

Run = Callable[..., Outcome]


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    for bench in (calibrate, crossing):
        monkeypatch.setattr(bench, "run", partial(bench.run, process=machine()))


def test_a_calibration_predicts_and_a_campaign_is_laid_beside_it(run: Run, stand: Path) -> None:
    shape = "shapes=[llama-3.1-8b]"
    first = run("bytes", "calibrate", shape, "device=cpu", "out=c.json")
    assert first.code == 0 and "a copy moves 4.2 TB/s\n" in first.out and first.out.endswith("wrote c.json\n")
    assert "llama-3.1-8b            4.000" in first.out and "0.700          +0.450" in first.out
    words = ["calibration=c.json", shape, "apart=block", "device=cpu", "out=x.json", "contexts=[2048,32768,131072]"]
    shown = run("bench", "crossing", *words)
    assert shown.code == 0 and shown.out.endswith("wrote x.json, x.png\n") and (stand / "x.png").stat().st_size > 10_000
    row = "| llama-3.1-8b | 50% / 30% | 74.3K | 57.3K | 57.3K | 57.3K .. 57.3K | "
    assert row in shown.out and "| llama-3.1-8b | masked | 128K |" in shown.out
    assert "predicted from c.json" in shown.out and "a bad baseline" in shown.out
    again = run("report", "result=x.json", "picture=again.png")
    assert row in again.out and (stand / "again.png").read_bytes() == (stand / "x.png").read_bytes()
    beside = run("bytes", "calibrate", shape, "device=cpu", "out=d.json", "contexts=[6000,90000]", "measured=x.json")
    assert row in beside.out


def test_a_calibration_has_the_machines_name(run: Run, stand: Path) -> None:
    shown = run("bytes", "calibrate", "shapes=[llama-3.2-3b]", "device=cpu")
    (path,) = (stand / "scores" / "bench").iterdir()
    assert path.name.startswith("calibration-") and f"wrote scores/bench/{path.name}" in shown.out
    assert json.loads(path.read_text())["format"] == "headscope.calibration/1"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["bytes", "calibrate", "contexts=[5]"], "`contexts` must be two or more"),
        (["bytes", "calibrate", "measured=a.json"], "a.json: No such file or directory"),
        (["bench", "crossing", "apart=step"], "`apart` must be one of cell, branch, block, got 'step'"),
        (["bench", "crossing", "calibration=a.json"], "a.json: No such file or directory"),
        (["bench", "crossing", "out=a.png"], "each file must have a path of its own"),
        (["bench", "crossing", "shapes=[llama]"], "`model` has no config 'llama'; give one of llama-3.1-70b"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(run: Run, stand: Path, words: list[str], message: str) -> None:
    shown = run(*words, "device=cpu")
    assert shown.code == 2 and message in shown.err and shown.err.count("\n") == 1 and list(stand.iterdir()) == []


def test_the_verb_of_one_word_keeps_its_help(run: Run) -> None:
    assert run("bytes", "--help").out.startswith("usage: headscope bytes key=value")
    assert run("bytes", "calibrate", "--help").out.startswith("usage: headscope bytes calibrate key=value")
    assert "bench crossing" in run("bench", "--help").out
