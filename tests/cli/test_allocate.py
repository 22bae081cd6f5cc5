"""``headscope allocate``: scores in, a budget file and its map out, and what it comes to in words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headscope.budget import Budget, allocate
from headscope.cli import line
from headscope.scores import HeadScores
from tests.cli.command import Outcome

Run = Callable[..., Outcome]
RULES = ["full", "headkv", "pyramid", "random", "sparsemm", "uniform"]


@pytest.fixture
def scores(stand: Path) -> HeadScores:
    """A score file `tiny.json` where the person stands."""
    made = HeadScores.from_values([[1, 1, 0, 0], [0, 0, 3, 45]], 2, id="tiny", head_dim=32)
    made.save("tiny.json")
    return made


def test_a_budget_is_written_drawn_and_told(run: Run, scores: HeadScores, stand: Path) -> None:
    shown = run("allocate", "scores=tiny.json", "per_head=64", "rule=sparsemm", "prompt=100", "out=new/b.json")
    assert (shown.code, shown.err) == (0, "")
    budget = Budget.load("new/b.json")
    assert budget.kept.tolist() == [[86, 35], [35, 100]]
    assert (stand / "new" / "b.png").read_bytes().startswith(b"\x89PNG")
    assert shown.out.splitlines() == [
        "model tiny: 2 layers x 2 KV heads",
        "rule sparsemm, ratio 0.1, paper_rounding False; window 32; a prompt of 100 tokens",
        "kept tokens a head: minimum 35, median 60.5, maximum 100, mean 64",
        "total 256 tokens, 64.0 % of the prompt's",
        "bytes 32768 in bfloat16, keys and values of the kept tokens",
        f"moved: {budget.moved} tokens, from heads that keep the whole prompt to others",
        "wrote new/b.json, new/b.png",
    ]


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_plans_as_the_library_does(run: Run, scores: HeadScores, rule: str) -> None:
    shown = run("allocate", "scores=tiny.json", "per_head=1e2", f"rule={rule}", "prompt=200", "window=16", "out=b.json")
    assert shown.code == 0, shown.err
    expected = allocate(scores, per_head=100, rule=rule, prompt=200, window=16)
    assert Budget.load("b.json").kept.tolist() == expected.kept.tolist()
    assert Budget.load("b.json").rule == rule


def test_settings_of_a_rule_are_keys_of_it(run: Run, scores: HeadScores) -> None:
    assert run("allocate", "scores=tiny.json", "per_head=64", "rule=pyramid", "rule.beta=2", "out=b.json").code == 0
    assert Budget.load("b.json").kept.tolist() == allocate(scores, per_head=64, rule="pyramid", beta=2).kept.tolist()
    assert "near: rule.ratio" in run("allocate", "scores=tiny.json", "per_head=64", "ratio=.2").err
    assert "`rule.beta` is not a key of this verb" in run("allocate", "scores=tiny.json", "rule.beta=2").err


def test_memory_for_a_batch_and_a_context(run: Run, scores: HeadScores) -> None:
    words = ["scores=tiny.json", "gib=0.001", "batch=8", "context=300", "prompt=250", "window=8", "out=b.json"]
    shown = run("allocate", *words)
    total = int(0.001 * 2**30) // (8 * 2 * 32 * 2) - 4 * 50
    assert Budget.load("b.json").total == total
    assert f"bytes {8 * total * 2 * 32 * 2} in bfloat16 for 8 sequences" in shown.out


def test_what_is_lost_is_told(run: Run, scores: HeadScores) -> None:
    shown = run("allocate", "scores=tiny.json", "per_head=64", "prompt=50", "out=b.json")
    assert "lost: 56 of the 256 tokens asked for find no place\n" in shown.out


def test_without_out_the_file_is_named_after_the_scores_the_rule_and_the_average(run: Run, scores: HeadScores) -> None:
    assert run("allocate", "scores=tiny.json", "per_head=64", "rule=uniform").code == 0
    assert Path("budgets/tiny-uniform-64.json").is_file() and Path("budgets/tiny-uniform-64.png").is_file()


def test_bytes_need_a_head_dim_that_the_scores_may_not_know(run: Run) -> None:
    HeadScores.from_values([[1, 2]], 2).save("bare.json")
    assert "bytes unknown: give head_dim=..." in run("allocate", "scores=bare.json", "per_head=64").out
    assert (
        "bytes 16384 in float32"
        in run("allocate", "scores=bare.json", "per_head=64", "head_dim=16", "dtype=float32").out
    )


@pytest.mark.parametrize("model", ["reader", "reader-22m"])
def test_scores_that_ship_are_found_by_the_model_s_name(run: Run, model: str) -> None:
    shown = run("allocate", f"model={model}", "per_head=64", "prompt=110", "out=b.json")
    assert shown.code == 0, shown.err
    assert "model reader-22m: 12 layers x 4 KV heads\n" in shown.out
    assert Budget.load("b.json").total == 48 * 64


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["per_head=64"], "`scores` is required: give scores=FILE, or model=NAME of one whose scores ship"),
        (["model=some/other-model", "per_head=64"], "`scores/other-model.json` does not ship with headscope"),
        (["model=some/other-model", "per_head=64"], "`headscope probe model=some/other-model out=other-model.json`"),
        (["scores=nowhere.json", "per_head=64"], "`nowhere.json`: expected a head-score file, found no file"),
        (["scores=tiny.json"], "one of `per_head`, `total`, `ratio_kept`, `bytes`, `gib` must say how much"),
        (["scores=tiny.json", "per_head=64", "gib=1"], "got `per_head`, `gib`; give one"),
        (["scores=tiny.json", "per_head=6.5"], "`per_head` must be a whole number, got 6.5"),
        (["scores=tiny.json", "per_head="], "`per_head` must be a whole number or null, got nothing"),
        (["scores=tiny.json", "per_head=16"], "`window` must be at most `per_head`"),
        (["scores=tiny.json", "per_head=64", "rule=sparsem"], "`rule` has no choice 'sparsem'; near: sparsemm"),
        (["scores=tiny.json", "per_head=64", "rule.ratio=2"], "`ratio` must be a number from 0 to 1, got 2.0"),
        (["scores=tiny.json", "per_head=64", "rule=full"], "`prompt` must be the prompt's length in tokens for `full`"),
        (["scores=tiny.json", "per_head=64", "rule=adaptive"], "`importances` must be a tensor [2, 2, prompt]"),
        (["scores=tiny.json", "per_head=64", "reduce=som"], "`reduce` must be one of sum, mean, max, got 'som'"),
        (["scores=tiny.json", "per_head=64", "dtype=bf16"], "`dtype` must be the name of a torch dtype"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(
    run: Run, scores: HeadScores, stand: Path, words: list[str], message: str
) -> None:
    shown = run("allocate", *words)
    assert (shown.code, shown.out) == (2, "")
    assert message in shown.err and shown.err.count("\n") == 1
    assert [path.name for path in stand.iterdir()] == ["tiny.json"]


def test_a_rule_goes_to_hydra_by_the_folder_it_is_in() -> None:
    assert line.read("allocate", ["rule=random", "rule.seed=4"]).overrides == ("budget@rule=random", "rule.seed=4")
    assert line.read("allocate", ["model=reader-22m"]).overrides == ("model=reader",)
    assert line.read("allocate", ["-m", "rule=random,uniform"]).swept == ("rule",)


def test_help_explains_the_keys_of_a_rule(run: Run) -> None:
    shown = run("allocate", "rule=random", "--help").out
    assert "  rule=sparsemm " in shown and "  rule.seed=0 " in shown
    assert "  rule: adaptive, full, headkv, pyramid, random, sparsemm, uniform\n" in shown


def test_a_sweep_writes_one_budget_a_job(run: Run, scores: HeadScores, stand: Path) -> None:
    words = ["scores=tiny.json", "per_head=48,64", "rule=uniform,headkv", "out=b.json", "hydra.sweep.dir=jobs"]
    assert run("allocate", "-m", *words).code == 0
    budgets = [Budget.load(path) for path in sorted(stand.glob("jobs/*/b.json"))]
    assert sorted((budget.rule, budget.per_head) for budget in budgets) == [
        ("headkv", 48), ("headkv", 64), ("uniform", 48), ("uniform", 64),
    ]  # fmt: skip
