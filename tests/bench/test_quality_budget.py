"""Quality budgets: what is chosen, what the gate refuses, and a whole run on a tiny model."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import headscope as hs
from headscope.accounting.crossover import Keep
from headscope.bench import grid
from headscope.bench.budgets import Setting
from headscope.bench.grid import GridSteps
from headscope.bench.loaded import Loaded, LoadedSteps
from headscope.bench.quality_budget import DENSE, Bench, Choice, choose, run
from headscope.gate import Verdict, build
from headscope.gate.prose import Prose
from headscope.select import observation_window
from headscope.sparsity import calibrate, cut_text
from tests.bench.stand_in import COSTS, byte_clock, machine
from tests.gate.tiny import TEXT, text_model, tokenizer

SETTINGS = [
    Setting(Keep(1, 1), 0.0, 5.0),
    Setting(Keep(1, 0.2), 0.05, 4.0),
    Setting(Keep(0.5, 1), 0.8, 3.5),
    Setting(Keep(0.5, 0.2), 0.9, 2.5),
]


def judged(*refused: Keep) -> Any:
    """A gate that refuses some settings."""

    def verdict(keep: Keep, budget: float) -> Verdict:
        reasons = ("passkey: 3 of 40 are lost",) if keep in refused else ()
        return Verdict(not reasons, reasons, budget, None, ())

    return SimpleNamespace(verdict=verdict)


def test_the_fastest_that_the_gate_admits_wins() -> None:
    found = choose(judged(), SETTINGS, 1.0)
    assert (found.best, found.single, found.refused) == (Keep(0.5, 0.2), Keep(0.5, 1), ())
    assert found.verdict.admitted and found.rise == 0.9


def test_what_the_gate_refuses_is_passed_over_and_told() -> None:
    found = choose(judged(Keep(0.5, 0.2), Keep(0.5, 1)), SETTINGS, 1.0)
    assert (found.best, found.single) == (Keep(1, 0.2), Keep(1, 0.2))
    assert [keep for keep, _ in found.refused] == [Keep(0.5, 0.2), Keep(0.5, 1)]
    assert found.refused[0][1] == ("passkey: 3 of 40 are lost",)


def test_the_single_branch_is_gated_as_well() -> None:
    found = choose(judged(Keep(0.5, 1)), SETTINGS, 1.0)
    assert (found.best, found.single) == (Keep(0.5, 0.2), Keep(1, 0.2))


def test_where_all_is_refused_the_dense_model_is_left() -> None:
    found = choose(judged(*(each.keep for each in SETTINGS[1:])), SETTINGS, 1.0)
    assert (found.best, found.single) == (DENSE, DENSE)


def test_a_budget_that_nothing_else_meets_is_the_dense_models() -> None:
    assert choose(judged(), SETTINGS, 0.01).best == DENSE


def test_speed_ups_are_those_of_the_same_block() -> None:
    times = {DENSE: [4.0, 8.0], Keep(0.5, 1): [2.0, 4.0], Keep(0.5, 0.2): [1.0, 2.0]}
    verdict = Verdict(True, (), 1.0, None, ())
    found = Choice(1.0, Keep(0.5, 0.2), Keep(0.5, 1), 0.9, verdict, ()).to_json(times)
    assert found["over_dense"] == {"mean": 4.0, "low": 4.0, "high": 4.0}
    assert found["over_single"]["mean"] == 2.0 and found["ms_per_token"]["mean"] == 1.5
    assert (found["keep_act"], found["keep_kv"], found["single"]) == (0.5, 0.2, {"keep_act": 0.5, "keep_kv": 1})


def bench(**changes: Any) -> Bench:
    """A tiny text model on a text that it is scored on, steps timed by their bytes."""
    model, words = text_model(), tokenizer()
    prose = Prose("short", TEXT * 40)
    suite = build(words, tests=["perplexity"], prose=prose, context=48, scored=16, count=2)
    thresholds = {0.5: calibrate(model, cut_text(words, TEXT * 4, context=64), 0.5, error_tokens=32)}
    loaded = Loaded.of(model, prose.ids(words)[:48])
    select = partial(observation_window, pool=1, sinks=1)
    told: list[str] = []
    steps = LoadedSteps(loaded, thresholds, byte_clock, 1)
    made = Bench(model, suite, steps, thresholds, select, window=8, tell=told.append)
    return SimpleNamespace(made=made, told=told, **changes)  # type: ignore[return-value]


def test_a_whole_run_on_a_tiny_model(tmp_path: Path) -> None:
    ready: Any = bench()
    account = hs.account(ready.made.model.config, context=48, dtype="float32")
    settings: dict[str, Any] = {"keep_act": [0.5], "keep_kv": [0.5], "budgets": [0.0, 1e9], "blocks": 3}
    found = run(ready.made, tmp_path / "q.json", {"model": {"id": "tiny"}}, account, **settings)
    assert json.loads((tmp_path / "q.json").read_text()) == found
    rises = {(at["keep_act"], at["keep_kv"]): at["perplexity"]["rise"] for at in found["grid"]}
    assert len(rises) == 4 and rises[1, 1] == 0 and abs(rises[1, 0.5]) > 0 and abs(rises[0.5, 1]) > 0
    by_pair = {(at["keep_act"], at["keep_kv"]): at for at in found["grid"]}
    assert by_pair[0.5, 1]["kept"]["of_bytes"] == pytest.approx(0.5, abs=0.2)
    assert by_pair[1, 0.5]["ms_per_token"] < by_pair[1, 1]["ms_per_token"]
    loose = found["budgets"][1]
    assert loose["keep_kv"] == 0.5 and loose["over_dense"]["mean"] > 1 and loose["admitted"]
    assert all(len(at["ms_per_token"]) == 3 for at in found["blocks_ms"])
    assert len(ready.told) == 4 and [at["budget"] for at in found["equal_quality"]] == [0.0, 1e9]


def test_budgets_need_perplexity(tmp_path: Path) -> None:
    ready: Any = bench()
    ready.made.suite = build(tokenizer(), tests=["passkey"], context=160, depths=[0.5], each=1)
    with pytest.raises(ValueError, match="`tests` must have perplexity among them"):
        run(ready.made, tmp_path / "q.json", {}, hs.account("reader"))


def test_a_text_runs_once_and_its_ends_are_kept() -> None:
    ready: Any = bench()
    whole, part = (ready.made.steps.loaded.segments(keep) for keep in (1.0, 0.5))
    assert int(whole[0].lengths[0, 0]) == 48 and int(part[0].lengths[0, 0]) == 24
    keys = ready.made.steps.loaded.cache[0][0]
    first = part[0].key[int(part[0].starts[0, 1]) :]
    assert bool((first[:4] == keys[0, 1, :4]).all()) and bool((first[4:24] == keys[0, 1, 28:]).all())


def test_the_times_of_another_machine_stand_in(tmp_path: Path) -> None:
    """A grid is timed in a screen and five blocks, a fresh process each; the screen's times time nothing again."""
    process = machine(lambda cell, attention: 0.1 * len(process.tasks))  # type: ignore[attr-defined]
    grid.run(tmp_path / "g.json", "abc", shape="llama-3.2-3b", device="cpu", process=process)
    steps = GridSteps.load(tmp_path / "g.json")
    assert len(process.tasks) == 6 and len({task.cells[0] for task in process.tasks}) == 6  # type: ignore[attr-defined]
    first, again = steps.screen(Keep(0.5, 0.2))["ms_per_token"], steps.again([Keep(0.5, 0.2), DENSE], 5)
    assert again[Keep(0.5, 0.2)] == pytest.approx([first + 0.1 * block for block in range(1, 6)])
    bytes_ = hs.account("llama-3.2-3b", context=32768).step.total
    assert steps.screen(DENSE)["ms_per_token"] == pytest.approx(bytes_ / 4e9 + COSTS["dense"] + 0.1)
    assert steps.told["shape"] == "llama-3.2-3b" and steps.context == 32768


@pytest.mark.parametrize(
    ("keep", "blocks", "message"),
    [
        (Keep(0.9, 1.0), 1, "keeping 0.9 of activations and 1 of the cache is missing in block 1"),
        (DENSE, 6, "`blocks` must be at most the 2 that `times` has, got 6"),
    ],
)
def test_a_grid_without_what_is_asked_is_named(tmp_path: Path, keep: Keep, blocks: int, message: str) -> None:
    grid.run(tmp_path / "g.json", shape="llama-3.2-3b", blocks=2, device="cpu", process=machine())
    with pytest.raises(ValueError, match=message):
        GridSteps.load(tmp_path / "g.json").again([keep], blocks)
    (tmp_path / "h.json").write_text("[]")
    with pytest.raises(ValueError, match="`times` must be a file of `python -m headscope.bench.grid`"):
        GridSteps.load(tmp_path / "h.json")
