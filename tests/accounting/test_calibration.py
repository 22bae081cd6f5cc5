"""A calibration gives back the bandwidth and costs that its steps were made of, and predicts no campaign of its own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headscope as hs
from headscope.accounting.calibration import FORMAT, Calibration, Fit
from headscope.accounting.cell import Cell, Timed
from headscope.accounting.crossing import byte_ms
from headscope.accounting.crossover import Keep
from headscope.accounting.prediction import predict
from headscope.accounting.step import step_bytes

ACCOUNT = hs.account("llama-3.1-8b", name="llama-3.1-8b")
COSTS = {(1.0, 1.0): 0.3, (1.0, 0.3): 0.35, (0.5, 1.0): 0.8, (0.7, 1.0): 0.9}
CONTEXTS = (5120, 46080, 101376)


def timed(tb_per_s: float, costs: dict[tuple[float, float], float], contexts: Sequence[int] = CONTEXTS) -> list[Timed]:
    """Steps that take their bytes' time and a cost."""
    found = []
    for (act, kv), cost in costs.items():
        for context in contexts:
            count = step_bytes(ACCOUNT.shape, ACCOUNT.precision, context, keep_act=act, keep_kv=kv).total
            found.append(Timed(Cell("llama-3.1-8b", context, act, kv), byte_ms(count, tb_per_s) + cost, count))
    return found


def calibration(**changes: Any) -> Calibration:
    return replace(Calibration("one", {"gpu": "NVIDIA H200"}, 4.2, tuple(timed(4.0, COSTS))), **changes)


def rule(**changes: Any) -> dict[str, Any]:
    return {"campaign": "two", "cells": [Cell("llama-3.1-8b", 65536)], "dtype": "bfloat16"} | changes


@given(st.floats(0.2, 9.0), st.lists(st.floats(0, 3), min_size=4, max_size=4))
def test_bandwidth_and_costs_come_back(tb_per_s: float, costs: list[float]) -> None:
    made = dict(zip(COSTS, costs, strict=True))
    fit = Fit.of(timed(tb_per_s, made))
    assert fit.tb_per_s == pytest.approx(tb_per_s, rel=1e-6)
    assert fit.costs == pytest.approx(made, abs=1e-5) and fit.residual_ms < 1e-5
    count = step_bytes(ACCOUNT.shape, ACCOUNT.precision, 30000, keep_kv=0.3).total
    assert fit.step_ms(count, Keep(1.0, 0.3)) == pytest.approx(byte_ms(count, tb_per_s) + made[1.0, 0.3], rel=1e-5)


def test_a_step_off_the_line_is_told() -> None:
    steps = timed(4.0, COSTS)
    steps[4] = replace(steps[4], ms=steps[4].ms + 0.3)
    assert 0.1 < Fit.of(steps).residual_ms < 0.3


def test_costs_between_and_beyond_what_was_timed() -> None:
    fit = Fit.of(timed(4.0, COSTS))
    assert fit.cost_ms(Keep(0.6, 1.0)) == pytest.approx(0.85, abs=1e-6)
    assert fit.cost_ms(Keep(0.4, 1.0)) == pytest.approx(0.8, abs=1e-6)
    assert fit.cost_ms(Keep(0.9, 1.0)) == pytest.approx(0.9, abs=1e-6)
    assert fit.cost_ms(Keep(1.0, 0.1)) == pytest.approx(0.35, abs=1e-6)
    assert fit.cost_ms(Keep(0.5, 0.3)) == pytest.approx(0.8 + 0.35 - 0.3, abs=1e-6)


@pytest.mark.parametrize(
    ("left_out", "keep", "branch"),
    [
        ([(0.5, 1.0), (0.7, 1.0)], Keep(0.5, 1.0), "projection"),
        ([(1.0, 0.3)], Keep(0.5, 0.3), "kv"),
        ([(1.0, 1.0)], Keep(1.0, 1.0), "dense"),
    ],
)
def test_a_branch_that_was_not_timed_is_named(left_out: list[Any], keep: Keep, branch: str) -> None:
    fit = Fit.of(timed(4.0, {pair: cost for pair, cost in COSTS.items() if pair not in left_out}))
    with pytest.raises(ValueError, match=f"holds no steps of the {branch} branch of llama-3.1-8b; calibrate it"):
        fit.cost_ms(keep)


@pytest.mark.parametrize("steps", [timed(4.0, COSTS, [5120]), [replace(at, ms=1 / at.ms) for at in timed(4.0, COSTS)]])
def test_steps_that_tell_no_bandwidth_are_refused(steps: list[Timed]) -> None:
    with pytest.raises(ValueError, match="two contexts or more that take longer with more bytes"):
        Fit.of(steps)


def test_the_prediction_is_the_equation_with_the_fitted_costs() -> None:
    found = predict(calibration(), ACCOUNT, Keep(0.5, 0.3), **rule())
    assert found.byte_tokens == pytest.approx(74.3 * 1024, rel=1e-3)
    growth = 0.7 * 131072 / 4e9
    assert found.growth_ms == pytest.approx(1024 * growth) and found.calibration == "one"
    assert found.tokens == pytest.approx(found.byte_tokens - (0.8 - 0.35) / growth)
    assert found.advantage_ms(found.tokens) == pytest.approx(0, abs=1e-6)
    assert found.advantage_ms(found.tokens + 1024) == pytest.approx(found.growth_ms)


@pytest.mark.parametrize("other", [{"shape": "llama-3.2-3b"}, {"batch": 2}, {"dtype": "float16"}, {"keep_kv": 0.31}])
def test_another_cell_is_no_cell_of_the_campaign(other: dict[str, Any]) -> None:
    cell = replace(calibration().timed[0].cell, **other)
    assert predict(calibration(), ACCOUNT, Keep(0.5, 0.3), **rule(cells=[cell])).tokens


def test_no_cell_of_the_campaign_enters_its_prediction() -> None:
    """ByteCross's rule: the very cell is refused, on whatever day it was timed, and so is a campaign's own id."""
    own = calibration().timed[2].cell
    with pytest.raises(
        ValueError, match="shares 1 cells, such as llama-3.1-8b at 101376 tokens.*with the campaign that"
    ):
        predict(calibration(), ACCOUNT, Keep(0.5, 0.3), **rule(cells=[Cell("llama-3.1-8b", 65536), own]))
    with pytest.raises(ValueError, match="shares all cells with the campaign that it is to predict"):
        predict(calibration(), ACCOUNT, Keep(0.5, 0.3), **rule(campaign="one"))


def test_a_file_gives_it_back(tmp_path: Path) -> None:
    made = calibration()
    rows = [asdict(at.cell) | {"ms_per_token": at.ms, "bytes": at.bytes} for at in made.timed]
    document = {"format": FORMAT, "campaign": "one", "hardware": {"gpu": "NVIDIA H200"}, "copy_tb_per_s": 4.2}
    path = tmp_path / "calibration.json"
    path.write_text(json.dumps(document | {"commit": None, "cells": rows}))
    found = Calibration.load(path)
    assert replace(found, origin=None) == made and found.device == "NVIDIA H200" and found.origin == str(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "must be a file of `headscope bytes calibrate`, .*a.json is no JSON"),
        ("[]", "a.json has 'list'"),
        ('{"format": "headscope.gate/1"}', "a.json has 'headscope.gate/1'"),
        (json.dumps({"format": FORMAT}), "a.json is not whole: KeyError.'campaign'.; calibrate again"),
    ],
)
def test_what_is_no_calibration_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        Calibration.load(tmp_path / "a.json")


def test_a_shape_that_was_not_timed_is_named() -> None:
    with pytest.raises(ValueError, match="has no steps of qwen3-8b, batch 1, bfloat16; it has llama-3.1-8b"):
        calibration().fit("qwen3-8b")
