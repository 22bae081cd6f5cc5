"""`headscope evaluate sweep` prints a table, writes file and plot, and goes on where it stopped."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from headscope.scores import HeadScores
from tests.cli.command import Outcome

Run = Callable[..., Outcome]
SWEEP = ("evaluate", "sweep", "model=reader", "out=s.json", "pages.limit=1", "seeds=2", "max_new_tokens=4")


def test_a_sweep_goes_on_where_it_stopped(run: Run, stand: Path) -> None:
    first = run(*SWEEP, "rules=[sparsemm]", "per_head=[64]")
    assert first.code == 0, first.err
    assert first.out.count("read ") == 2 and Image.open("s.png").size[0] > 600
    second = run(*SWEEP, "rules=[sparsemm,random]", "per_head=[64]")
    assert second.out.count("read ") == 2
    document = json.loads((stand / "s.json").read_text())
    assert [point["rule"] for point in document["points"]] == ["full", "sparsemm", "random", "random"]
    assert document["prompt_tokens"] == 110 and document["hardware"] and document["software"]
    table = second.out.split("\n\n")[1].splitlines()
    assert [line.split()[0] for line in table[1:4]] == ["full", "sparsemm", "random"]


def test_other_pages_or_scores_begin_anew(run: Run, stand: Path) -> None:
    sweep = (*SWEEP, "rules=uniform", "per_head=64")
    assert run(*SWEEP[:4], *SWEEP[5:], "pages.limit=2", *sweep[-2:]).code == 0
    assert run(*sweep).out.count("read ") == 2
    assert json.loads((stand / "s.json").read_text())["pages"] == 1
    HeadScores.from_values([[1.0] * 12] * 12, kv_heads=4).save(stand / "equal.json")
    assert run(*sweep, "scores=equal.json").out.count("read ") == 2


def test_the_jobs_of_a_multirun_read_no_point_twice_and_a_run_after_them_puts_all_in_one_table(
    run: Run, stand: Path
) -> None:
    swept = run(*SWEEP, "-m", "rules=sparsemm,uniform", "per_head=64", "hydra.sweep.dir=jobs")
    assert swept.code == 0, swept.err
    assert swept.out.count("read ") == 3  # the full cache once
    rules = [[at["rule"] for at in json.loads((stand / f"jobs/{job}/s.json").read_text())["points"]] for job in "01"]
    assert rules == [["full", "sparsemm"], ["full", "uniform"]] and (stand / "jobs/1/s.png").is_file()
    again = run(*SWEEP, "-m", "rules=sparsemm,uniform", "per_head=64", "hydra.sweep.dir=more")
    assert again.code == 0 and again.out.count("read ") == 0 and (stand / "more/1/s.json").is_file()
    together = run(*SWEEP, "rules=[sparsemm,uniform]", "per_head=64")
    assert together.code == 0 and together.out.count("read ") == 0
    assert [at["rule"] for at in json.loads((stand / "s.json").read_text())["points"]] == [
        "full",
        "sparsemm",
        "uniform",
    ]
    assert not list(stand.glob("*.progress.jsonl"))
    before = (stand / "s.json").stat().st_mtime_ns
    assert run(*SWEEP, "rules=uniform", "per_head=64").code == 0 and (stand / "s.json").stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("rules=[sparsemmm]",), "did you mean sparsemm?"),
        (("selections=[text]",), "`select` must be a function or one of"),
        (("per_head=[64,8]",), "`window` must be at most `per_head`"),
        (("seeds=0",), "`seeds` must be at least 1, got 0"),
    ],
)
def test_a_mistake_is_one_line_before_anything_is_read(
    run: Run, stand: Path, words: tuple[str, ...], message: str
) -> None:
    shown = run(*SWEEP, *words)
    assert (shown.code, shown.err.count("\n")) == (2, 1), shown.err
    assert message in shown.err and "read " not in shown.out and not list(stand.iterdir())
