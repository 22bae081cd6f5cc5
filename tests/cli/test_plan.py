"""``headscope plan`` from the command line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command import Outcome

Run = Callable[..., Outcome]
SHIPPED = Path(__file__).parents[2] / "scores" / "bench"


def test_it_says_what_is_recommended_why_and_what_is_missing(run: Run) -> None:
    shown = run("plan", "model=llama-3.1-8b", "gpu=l40s", "context=65536", "results=.")
    assert shown.code == 0
    assert "on NVIDIA L40S, 0.864 TB/s by its datasheet, 48 GB of memory\none sequence of 65536 tokens" in shown.out
    assert "recommended: dense; 27.3" in shown.out
    assert "- speed bound: 23.60 GB at the datasheet's 0.864 TB/s; no kernel is so fast\n" in shown.out
    assert "- quality account: the dense model itself\n" in shown.out
    assert "missing:\n- no calibration of NVIDIA L40S: run `headscope bytes calibrate` on it\n" in shown.out


def test_json_is_one_object_and_the_file_holds_the_same(run: Run, stand: Path) -> None:
    words = ["model=qwen2-vl-7b", "gpu=a100-sxm4-80gb", "context=32768", "batch=8", "acceptance=.9", "quality=0"]
    shown = run("plan", *words, "format=json", "out=plan.json", "results=.")
    found = json.loads(shown.out)
    assert found["format"] == "headscope.plan/1" and (stand / "plan.json").read_text() == shown.out
    assert found["recommended"]["gamma"] == 3 and found["recommended"]["lossless"]
    assert (found["batch"], found["quality"], found["gpu"]["name"]) == (8, 0.0, "NVIDIA A100-SXM4-80GB")


def test_what_ships_is_found_and_what_lies_here_comes_first(run: Run, stand: Path) -> None:
    """The shipped results have decode steps of an H200, whose dense step is then a measured one."""
    words = ["plan", "model=llama-3.1-8b", "gpu=h200", "context=131072", "format=json"]
    cells = json.loads((SHIPPED / "decode-cuda.json").read_text())["cells"]
    full = [
        at["ms_per_token"]
        for at in cells
        if (at["shape"], at["batch"], at["context"], at["cache"]) == ("llama-3.1-8b", 1, 131072, "full")
        and at["attention"] != "transformers"
    ]
    dense = next(at for at in json.loads(run(*words).out)["options"] if at["name"] == "dense")
    assert dense["speed"]["kind"] == "measured" and dense["ms_per_token"] <= min(full) + 1e-4
    folder = stand / "scores" / "bench"
    folder.mkdir(parents=True)
    for path in SHIPPED.glob("*.json"):
        (folder / path.name).write_text("{}")
    dense = next(at for at in json.loads(run(*words).out)["options"] if at["name"] == "dense")
    assert dense["speed"]["kind"] == "bound"
    shutil.rmtree(stand / "scores")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "`model` is required"),
        (["model=llama-3.1-8b"], "`gpu` is required; give gpu=..."),
        (["model=llama-3.1-8b", "gpu=a100"], "it may be NVIDIA A100-SXM4-80GB, NVIDIA A100 80GB PCIe"),
        (
            ["model=llama-3.1-8b", "gpu=h200", "quality=-1"],
            "`quality` must be a rise of perplexity, at least 0, got -1",
        ),
        (["model=llama-3.1-8b", "gpu=h200", "results=none"], "`results` must be a folder with result files, none is"),
        (["model=llama-3.1-8b", "gpu=none.json"], "none.json: No such file or directory"),
        (["model=llama-3.1-8b", "gpu=h200", "acceptance=2"], "`acceptance` must be a number from 0 to 1, got 2"),
        (["model=llama-3.1-8b", "gpu=h200", "context=0"], "`context` must be a whole number above 0, got 0"),
    ],
)
def test_a_mistake_is_one_line(run: Run, stand: Path, words: list[str], message: str) -> None:
    shown = run("plan", *words)
    assert (shown.code, shown.out) == (2, "")
    assert message in shown.err and shown.err.count("\n") == 1 and list(stand.iterdir()) == []
