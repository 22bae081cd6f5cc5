"""What docs/gate.md says was measured is what the result files hold, and the files hold what they claim."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headscope.gate.document import FORMAT
from headscope.gate.perplexity import Block, rise

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "scores" / "bench").glob("gate-*.json"))
DOCS = (ROOT / "docs" / "gate.md").read_text(encoding="utf-8")


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def row(path: Path) -> str:
    """A result as the table has it: of each test the placements kept of those that the dense model answers."""
    found = read(path)
    risen, given = found["perplexity"], found["configuration"]
    kept = ", ".join(
        f"{test['test']} {test['right_dense'] - len(test['lost'])} of {test['right_dense']}" for test in found["tests"]
    )
    setting = f"{given['rule']}, {given['select']['_target_'].rpartition('.')[2]}, window {given['window']}"
    cells = (
        f"[{found['model']['id']}](../scores/bench/{path.name})",
        f"{given['keep_kv']:.0%}: {setting}",
        f"{risen['rise']:.2f} ({risen['low']:.2f} .. {risen['high']:.2f})",
        kept,
        "admitted" if found["admitted"] else "not admitted",
    )
    return f"| {' | '.join(cells)} |"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_documented_row_is_that_of_the_file(path: Path) -> None:
    assert row(path) in DOCS


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_verdict_follows_from_what_the_file_holds(path: Path) -> None:
    found = read(path)
    assert found["format"] == FORMAT and found["hardware"] and found["software"]
    sides = [[tuple(map(Block, at[side], at["tokens"])) for at in found["windows"]] for side in ("dense", "configured")]
    assert rise(*sides, seed=found["protocol"]["seed"]).to_json() == pytest.approx(found["perplexity"])
    lost = [at for at in found["placements"] if at["dense"]["right"] and not at["configured"]["right"]]
    assert len(lost) == sum(len(test["lost"]) for test in found["tests"])
    assert found["admitted"] == (not lost and found["perplexity"]["rise"] <= found["max_rise"])
    assert bool(found["reasons"]) != found["admitted"]


def test_a_window_answers_exactly_the_passkeys_that_lie_in_it() -> None:
    """What ByteCross found on Llama-3.1-8B: 16 of 40, those in the last 30 % of the prompt."""
    found = read(ROOT / "scores" / "bench" / "gate-smollm2-135m-window.json")
    kept = {at["depth"]: at["configured"]["right"] for at in found["placements"] if at["test"] == "passkey"}
    assert kept == {0.05: False, 0.25: False, 0.5: False, 0.75: True, 0.95: True}
    assert sum(at["configured"]["right"] for at in found["placements"] if at["test"] == "passkey") == 16


def test_a_rise_of_perplexity_within_its_budget_is_not_enough() -> None:
    found = read(ROOT / "scores" / "bench" / "gate-reader-22m.json")
    assert found["perplexity"]["rise"] <= found["max_rise"] and not found["admitted"]


def test_both_verdicts_are_shown() -> None:
    assert {read(path)["admitted"] for path in FILES} == {True, False}
