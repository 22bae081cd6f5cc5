"""A run: everything measured once, under policies that compose, and gone on with where it stopped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headscope.gate.document import dense_part, to_document
from headscope.gate.kept import Kept
from headscope.gate.policy import Policy, together
from headscope.gate.prose import Prose
from headscope.gate.run import Measured, measure
from headscope.gate.suite import Suite, build
from headscope.gate.verdict import judge
from tests.gate.tiny import TEXT, text_model, tokenizer


@pytest.fixture(scope="module")
def model() -> Any:
    return text_model()


@pytest.fixture(scope="module")
def suite() -> Suite:
    prose = Prose("own.txt", TEXT * 30)
    return build(tokenizer(), prose=prose, context=200, scored=40, count=2, depths=[0.5], each=1)


@pytest.fixture(scope="module")
def dense(model: Any, suite: Suite) -> Measured:
    return measure(model, suite)


def noting(name: str, notes: list[str]) -> Policy:
    @contextmanager
    def block(_model: Any) -> Iterator[None]:
        notes.append(f"in {name}")
        yield
        notes.append(f"out {name}")

    return block


def test_policies_compose_and_are_entered_for_each_prompt(model: Any, suite: Suite, dense: Measured) -> None:
    notes: list[str] = []
    found = measure(model, suite, together(noting("a", notes), noting("b", notes)), noting("c", notes))
    assert notes == ["in a", "in b", "in c", "out c", "out b", "out a"] * 4
    assert found == dense


def test_a_run_goes_on_where_it_stopped(model: Any, suite: Suite, dense: Measured, tmp_path: Path) -> None:
    path, lines = tmp_path / "state.jsonl", []

    def stop(line: str) -> None:
        lines.append(line)
        if len(lines) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure(model, suite, kept=Kept.open(path, {}), tell=stop)
    notes: list[str] = []
    assert measure(model, suite, noting("a", notes), kept=Kept.open(path, {})) == dense
    assert notes == ["in a", "out a"]
    assert lines[0].startswith("1 of 4: tokens 0..") and lines[2].startswith("3 of 4: passkey 0.5 0")


def test_a_result_s_dense_part_comes_back(suite: Suite, dense: Measured) -> None:
    document = {"model": {"id": "tiny"}, **to_document(suite, dense, dense, judge(suite, dense, dense))}
    again = json.loads(json.dumps(document, allow_nan=False))
    assert dense_part(again, suite, {"model": {"id": "tiny"}}) == dense
    assert again["placements"][0]["position"] == suite.placements[0].position


def test_a_dense_part_of_another_model_or_suite_is_refused(suite: Suite, dense: Measured) -> None:
    document = {"model": {"id": "tiny"}, **to_document(suite, dense, dense, judge(suite, dense, dense))}
    with pytest.raises(ValueError, match="`dense` must come from the same model: it has {'id': 'tiny'}"):
        dense_part(document, suite, {"model": {"id": "other"}})
    other = build(tokenizer(), tests=["passkey"], context=210, depths=[0.5], each=1)
    with pytest.raises(ValueError, match="`dense` must come from the same protocol"):
        dense_part(document, other, {"model": {"id": "tiny"}})
    with pytest.raises(ValueError, match="`dense` must be a result file of `headscope gate`, got format None"):
        dense_part({}, suite, {})
