"""``headscope export``: scores or a budget, never both, into another tool's file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from headscope.budget import Budget
from headscope.scores import HeadScores
from tests.cli.command import Outcome

Run = Callable[..., Outcome]


@pytest.fixture
def files(stand: Path) -> None:
    HeadScores.from_values([[1, 2], [0, 3]], kv_heads=1).save(stand / "scores.json")
    Budget(torch.tensor([[24, 8], [40, 16]]), window=8, prompt=40).save(stand / "budget.json")


@pytest.mark.usefixtures("files")
def test_a_budget_is_exported_by_its_file(run: Run, stand: Path) -> None:
    shown = run("export", "budget=budget.json", "to=layers", "out=out/layers.json")
    assert (shown.code, shown.out) == (0, "exported budget.json for layers as out/layers.json\n")
    assert (stand / "out" / "layers.json").read_text() == "[16, 28]\n"
    assert run("export", "budget=budget.json", "to=duoattention", "out=duo").code == 0
    assert (stand / "duo" / "full_attention_heads.tsv").read_text() == "0.5\t0.0\n1.0\t0.25\n"


@pytest.mark.usefixtures("files")
def test_scores_are_exported_as_before(run: Run, stand: Path) -> None:
    assert run("export", "scores=scores.json", "to=sparsemm", "out=heads.json").code == 0
    assert (stand / "heads.json").read_text() == '{"0-0": [1.0], "0-1": [2.0], "1-0": [0.0], "1-1": [3.0]}\n'


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["to=lukv"], "`scores` or `budget` is required, one of the two, got neither"),
        (["scores=scores.json", "budget=budget.json", "to=lukv"], "one of the two, got both"),
        (
            ["budget=budget.json", "to=sparsemm"],
            "`to` must be one of duoattention, lukv, layers, qrhead for a budget, got",
        ),
        (["scores=scores.json", "to=layers"], "`to` must be one of sparsemm, .* for scores, got 'layers'"),
        (["budget=scores.json", "to=lukv"], '`scores.json`: expected "format": "headscope.budget/1", found'),
        (["budget=nowhere.json", "to=lukv"], "`nowhere.json`: expected a budget file, found no file"),
        (["budget=budget.json", "to=qrhead"], "`budget` must know its model's query heads"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(run: Run, stand: Path, words: list[str], message: str) -> None:
    shown = run("export", *words, "out=out.json")
    assert shown.code == 2
    assert shown.err.count("\n") == 1
    assert not (stand / "out.json").exists()
    with pytest.raises(ValueError, match=message):
        raise ValueError(shown.err)
