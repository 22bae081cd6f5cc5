"""Fresh processes: work runs in another one, its failures come back, and a tiny calibration runs through them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headscope.accounting.calibration import Calibration
from headscope.bench import calibrate
from headscope.bench.fresh import fresh, here
from tests.bench.stand_in import tiny


def number(_: object) -> int:
    return os.getpid()


def fail(what: str) -> None:
    raise ValueError(what)


def die(code: int) -> None:
    os._exit(code)


def test_each_piece_has_a_process_of_its_own() -> None:
    assert len({os.getpid(), fresh(number, None), fresh(number, None)}) == 3
    assert here(number, None) == os.getpid()


def test_a_failure_comes_back_with_its_traceback() -> None:
    with pytest.raises(RuntimeError, match="a process that measures failed:(.|\n)*in fail(.|\n)*ValueError: too hot"):
        fresh(fail, "too hot")
    with pytest.raises(RuntimeError, match="died with exit code 7"):
        fresh(die, 7)


def test_a_calibration_runs_through_fresh_processes(tmp_path: Path) -> None:
    out, shape = tmp_path / "calibration.json", tiny(tmp_path / "tiny")
    grid = {"shapes": [shape], "contexts": [16, 60000], "keep_act": [0.5], "keep_kv": [0.2], "both": []}
    document = calibrate.run(out, "abc", **grid, dtype="float32", repeats=2, rounds=1, device="cpu")
    found = Calibration.load(out)
    assert found.shapes == [shape] and len(found.timed) == 6 and found.commit == "abc"
    assert found.fit(shape, 1, "float32").to_json() == document["fits"][0]
