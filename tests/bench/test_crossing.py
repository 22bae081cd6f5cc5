"""A crossing campaign on a known machine: it finds the crossings, beside predictions that knew none of its cells."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest

from headscope.accounting.cell import Cell
from headscope.bench import calibrate, cells, crossing, crossing_summary
from headscope.bench.fresh import here
from tests.bench.stand_in import COSTS, TB_PER_S, byte_clock, machine, tiny

K = 1024
SHAPE = "llama-3.1-8b"


def run(folder: Path, **settings: Any) -> dict[str, Any]:
    """Run a campaign of one shape without baselines on the stand-in."""
    plain = {"shapes": [SHAPE], "baselines": [], "device": "cpu", "process": machine(), "apart": "block"}
    return crossing.run(folder / "crossing.json", "abc", **{**plain, **settings})


@pytest.fixture(scope="module")
def calibration(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("calibration") / "calibration.json"
    calibrate.run(path, "abc", shapes=[SHAPE], device="cpu", process=machine())
    return path


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory, calibration: Path) -> dict[str, Any]:
    noise = iter(range(10**6))
    process = machine(lambda cell, attention: 0.01 * math.sin(7.0 * next(noise)))
    return run(
        tmp_path_factory.mktemp("crossing"), calibration=calibration, process=process, baselines=crossing.BASELINES
    )


def test_it_crosses_where_the_machine_does_and_where_it_was_predicted(campaign: dict[str, Any]) -> None:
    beyond = COSTS["projection"] - COSTS["kv"]
    assert [(at["keep_act"], at["keep_kv"]) for at in campaign["crossings"]] == list(crossing.PAIRS)
    for at in campaign["crossings"]:
        truth = at["byte_tokens"] - beyond * TB_PER_S * 1e9 / (131072 * (1 - at["keep_kv"]))
        assert at["predicted_tokens"] == pytest.approx(truth, abs=0.1 * K)
        assert at["measured_tokens"] == pytest.approx(truth, abs=1.5 * K)
        assert at["low"] < at["measured_tokens"] < at["high"] and at["blocks"] == 5
        assert at["off_tokens"] == pytest.approx(at["measured_tokens"] - at["predicted_tokens"], abs=0.2)


def test_no_cell_of_the_campaign_is_the_calibrations(campaign: dict[str, Any], calibration: Path) -> None:
    known = json.loads(calibration.read_text())
    cells = {Cell.of(row) for row in (*campaign["cells"], *campaign["baseline_cells"])}
    assert not cells & {Cell.of(row) for row in known["cells"]}
    assert campaign["calibration"]["campaign"] == known["campaign"] != campaign["campaign"]
    assert {at["calibration"] for at in campaign["predictions"]} == {known["campaign"]}


def test_a_calibration_with_a_cell_of_the_campaign_stops_it_before_anything_is_timed(tmp_path: Path) -> None:
    path, process = tmp_path / "calibration.json", machine()
    contexts = [5120, 32768]
    calibrate.run(path, shapes=[SHAPE], contexts=contexts, device="cpu", process=machine())
    with pytest.raises(ValueError, match="shares . cells, such as .* at 32768 tokens.*calibrate at other `contexts`"):
        run(tmp_path, calibration=path, process=process)
    assert process.tasks == [] and not (tmp_path / "crossing.json").exists()  # type: ignore[attr-defined]


def test_a_calibration_of_another_machine_is_refused(tmp_path: Path, calibration: Path) -> None:
    other = json.loads(calibration.read_text()) | {"hardware": {"gpu": "NVIDIA H200"}}
    (tmp_path / "other.json").write_text(json.dumps(other))
    with pytest.raises(ValueError, match="`calibration` must be of this machine, .* is of NVIDIA H200"):
        run(tmp_path, calibration=tmp_path / "other.json")


def test_speed_ups_stay_below_their_bounds_and_both_is_the_fastest(campaign: dict[str, Any]) -> None:
    found: dict[tuple[int, str], dict[str, Any]] = {
        (at["context"], at["branch"]): at
        for at in campaign["speed_ups"]
        if (at["keep_act"], at["keep_kv"]) in ((1, 1), (0.5, 1), (1, 0.3), (0.5, 0.3))
    }
    for context in crossing.CONTEXTS:
        kv, projection, both = (found[context, branch] for branch in ("kv", "projection", "both"))
        assert both["speed_up"]["mean"] > max(kv["speed_up"]["mean"], projection["speed_up"]["mean"])
        assert not any(at["above_bound"] for at in (kv, projection, both)) and both["blocks"] == 5
        assert both["bound"] > max(kv["bound"], projection["bound"])
    assert found[131072, "kv"]["bound"] == pytest.approx(1.60, abs=0.005)


def test_a_speed_up_above_its_bound_is_flagged_as_a_bad_baseline(campaign: dict[str, Any]) -> None:
    """An attention that reads at a fraction of the bandwidth makes the same window look better than bytes allow."""
    flags = {(at["attention"], at["context"]): at["above_bound"] for at in campaign["baselines"]}
    assert {name for name, _ in flags} == {"masked", "fused", "sdpa", "split"}  # fa3 is not here
    assert all(flags[name, 131072] for name in ("masked", "fused"))
    assert not any(flag for (name, _), flag in flags.items() if name == "split")
    masked = next(at for at in campaign["baselines"] if (at["attention"], at["context"]) == ("masked", 131072))
    assert masked["speed_up"] > 1.6 and masked["dense_of_copy"] < 0.2


def test_a_dense_step_below_its_best_is_flagged_too(tmp_path: Path) -> None:
    process = machine(lambda cell, attention: 3.0 * (cell.branch == "dense"))
    found = run(tmp_path, process=process, contexts=[65536], blocks=2)["speed_ups"]
    (kv,) = (at for at in found if at["branch"] == "kv" and at["context"] == 65536 and at["keep_kv"] == 0.3)
    assert kv["above_bound"] and kv["certain"]


@pytest.mark.parametrize(("apart", "processes"), [("block", 1), ("branch", 6), ("cell", 33)])
def test_what_has_a_process_of_its_own(tmp_path: Path, apart: str, processes: int) -> None:
    """One shape has 6 branches: dense, two of each single one, both."""
    process = machine()
    run(tmp_path, apart=apart, blocks=1, contexts=[2048, 8192, 32768, 65536], process=process)
    tasks = process.tasks  # type: ignore[attr-defined]
    assert len(tasks) == processes and sum(len(task.cells) for task in tasks) == 33


def test_each_block_begins_with_the_next_branch(tmp_path: Path) -> None:
    process = machine()
    run(tmp_path, blocks=3, contexts=[2048, 8192], process=process)
    tasks = process.tasks  # type: ignore[attr-defined]
    assert [task.cells[0].branch for task in tasks] == ["dense", "kv", "projection"]
    orders = [[cell.context for cell in task.cells if cell.branch == "dense"] for task in tasks]
    assert orders == [[2048, 8192], [8192, 2048], [2048, 8192]]
    assert {frozenset(task.cells) for task in tasks} == {frozenset(tasks[0].cells)}


def test_without_a_calibration_it_looks_again_where_the_first_block_points(tmp_path: Path) -> None:
    """Costs so uneven that the branches cross far from where bytes say: the contexts follow."""
    process = machine(lambda cell, attention: 0.6 * (cell.keep_act < 1))
    found = run(tmp_path, process=process, blocks=2, contexts=[2048], pairs=[(0.5, 0.3)])
    (at,) = found["crossings"]
    truth = at["byte_tokens"] - (0.6 + COSTS["projection"] - COSTS["kv"]) * TB_PER_S * 1e9 / (131072 * 0.7)
    assert at["predicted_tokens"] is None and found["predictions"] == []
    assert at["measured_tokens"] == pytest.approx(truth, abs=100)


def test_a_time_limit_begins_nothing_more_and_keeps_what_is_there(tmp_path: Path) -> None:
    found = run(tmp_path, limit_s=1e-9, blocks=3)
    assert found["cells"] == [] and found["crossings"] == [] and found["speed_ups"] == []


def test_blocks_take_turns_between_shapes_so_that_a_cut_off_leaves_each_its_share(tmp_path: Path) -> None:
    process = machine()
    run(tmp_path, shapes=[SHAPE, "llama-3.2-3b"], blocks=2, contexts=[2048, 131072], process=process)
    shapes = [task.shape for task in process.tasks]  # type: ignore[attr-defined]
    assert [shape for shape, _ in itertools.groupby(shapes)] == [SHAPE, "llama-3.2-3b"] * 2


def test_a_block_that_was_cut_off_is_left_out() -> None:
    rows = [
        {"shape": SHAPE, "keep_act": act, "keep_kv": kv, "context": context, "block": block, "ms_per_token": ms}
        for block, contexts in enumerate([(1000, 2000), (1000, 2000), (1000,)])
        for context in contexts
        for act, kv, ms in ((0.5, 1.0, 4.0), (1.0, 0.3, 5.5 - context / 1000))
    ]
    account = crossing_summary.account_of(SHAPE, None, "bfloat16")
    found = crossing_summary._crossing(rows, account, (0.5, 0.3), [])
    assert found is not None and found["blocks"] == 2 and found["measured_tokens"] == 1500


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"apart": "step"}, "`apart` must be one of cell, branch, block, got 'step'"),
        ({"baselines": ["flash"]}, "`baselines` must be some of split, sdpa, fa3, fused, masked, got flash"),
        ({"blocks": 0}, "`blocks` must be a whole number from 1 to 10, got 0"),
    ],
)
def test_a_mistake_is_named_before_anything_is_timed(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(tmp_path, **settings)


def test_a_whole_campaign_runs_on_a_real_tiny_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real steps in this process, by a clock that counts bytes: all but CUDA's graphs and events."""
    shape = tiny(tmp_path / "tiny")
    monkeypatch.setattr(cells, "timer_of", lambda device: byte_clock)
    plain: dict[str, Any] = {"dtype": "float32", "device": "cpu", "process": here, "repeats": 1}
    calibrate.run(tmp_path / "c.json", shapes=[shape], contexts=[64, 3000], rounds=1, keep_act=[0.5], **plain)
    plain |= {"contexts": [128, 512], "around": [-2048, 0], "pairs": [(0.5, 0.3)], "blocks": 2}
    found = run(
        tmp_path, shapes=[shape], calibration=tmp_path / "c.json", **plain, baselines=["split", "sdpa"],
        baseline_contexts=[256],
    )  # fmt: skip
    assert {row["block"] for row in found["cells"]} == {0, 1} and all("ms_per_token" in row for row in found["cells"])
    assert [at["attention"] for at in found["baselines"]] == ["split", "sdpa"]
    assert found["predictions"][0]["tb_per_s"] == pytest.approx(1e-3, rel=0.05)
    assert json.loads((tmp_path / "crossing.json").read_text()) == found
