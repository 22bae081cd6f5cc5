"""A calibration of a known machine finds what that machine is made of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headscope.accounting.calibration import Calibration
from headscope.bench import calibrate, campaign, crossing
from tests.bench.stand_in import COPY, COSTS, TB_PER_S, machine


def test_it_finds_the_bandwidth_and_each_branchs_cost(tmp_path: Path) -> None:
    out = tmp_path / "calibration.json"
    process = machine()
    document = calibrate.run(out, "abc", device="cpu", process=process)
    assert json.loads(out.read_text()) == document and document["copy_tb_per_s"] == COPY
    assert [task.shape for task in process.tasks] == list(calibrate.SHAPES)  # type: ignore[attr-defined]
    for fit in document["fits"]:
        assert fit["tb_per_s"] == pytest.approx(TB_PER_S, abs=1e-3)
        costs = {(at["keep_act"], at["keep_kv"]): at["ms"] for at in fit["costs"]}
        assert costs[1, 1] == pytest.approx(COSTS["dense"], abs=1e-3)
        assert costs[0.7, 1] == costs[0.5, 1] == pytest.approx(COSTS["projection"], abs=1e-3)
        assert costs[1, 0.3] == pytest.approx(COSTS["kv"], abs=1e-3)
        assert costs[0.5, 0.3] == pytest.approx(COSTS["both"], abs=1e-3)


def test_two_calibrations_are_two_campaigns(tmp_path: Path) -> None:
    made = [calibrate.run(tmp_path / f"{name}.json", device="cpu", process=machine()) for name in "ab"]
    assert made[0]["campaign"] != made[1]["campaign"]


def test_its_own_contexts_are_none_that_a_crossing_is_measured_at() -> None:
    """By default the two campaigns can share no cell: a crossing is looked for on a grid that these are off."""
    looked_at = {*crossing.CONTEXTS, *crossing.BASELINE_CONTEXTS, campaign.GRID // 2}
    assert not looked_at & set(calibrate.CONTEXTS)
    assert all(context % campaign.GRID for context in calibrate.CONTEXTS)


def test_one_context_tells_no_bandwidth(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`contexts` must be two or more, to tell bandwidth from costs, got .5."):
        calibrate.run(tmp_path / "a.json", contexts=[5], device="cpu", process=machine())
    assert not list(tmp_path.iterdir())


def test_what_could_not_be_timed_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = machine()

    def half(work, argument):  # type: ignore[no-untyped-def]
        rows = process(work, argument)
        return rows if rows == COPY else [*rows, {"shape": argument.shape, "failed": "does not fit in the memory"}]

    document = calibrate.run(tmp_path / "a.json", shapes=["llama-3.2-3b"], device="cpu", process=half)
    assert all("ms_per_token" in row for row in document["cells"])
    assert len(Calibration.of(document).timed) == 2 * 3 * 7
