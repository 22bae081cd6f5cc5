"""A GPU is found by its name, a part of it, or its calibration."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from headscope.accounting.calibration import Calibration
from headscope.bench import calibrate
from headscope.plan.gpu import find_gpu, table
from tests.bench.stand_in import machine


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("h200", "NVIDIA H200"),
        ("NVIDIA H200", "NVIDIA H200"),
        ("rtx-4090", "NVIDIA GeForce RTX 4090"),
        ("a100-sxm4-80gb", "NVIDIA A100-SXM4-80GB"),
        ("l4", "NVIDIA L4"),
        ("l40s", "NVIDIA L40S"),
        ("rtx a6000", "NVIDIA RTX A6000"),
        ("h100 hbm3", "NVIDIA H100 80GB HBM3"),
    ],
)
def test_a_name_or_a_part_that_no_other_has(asked: str, name: str) -> None:
    found = find_gpu(asked)
    assert found.name == name and found.tb_per_s == table()[name]["tb_per_s"]
    assert found.memory_bytes == table()[name]["memory_gb"] * 1e9


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("a100", "got 'a100', it may be NVIDIA A100-SXM4-80GB, NVIDIA A100 80GB PCIe, NVIDIA A100-SXM4-40GB"),
        ("nvidia h201", "got 'nvidia h201', near: nvidia h200"),
        ("abacus", "`gpu` must be one of NVIDIA B200, .*, or a file of `headscope bytes calibrate`; got 'abacus'"),
        ("", "none is near"),
    ],
)
def test_a_name_of_none_or_of_several_is_one_line(asked: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_gpu(asked)


def test_figures_are_figures() -> None:
    for name, figures in table().items():
        assert re.match(r"(NVIDIA|AMD|Tesla) ", name)
        assert 0.1 < figures["tb_per_s"] < 20 and 8 <= figures["memory_gb"] <= 512


def test_a_calibration_is_the_gpus_own(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    made = calibrate.run(path, shapes=["llama-3.2-3b"], device="cpu", process=machine())
    path.write_text(json.dumps(made | {"hardware": {"gpu": "NVIDIA H200", "memory_gib": 139.8}}))
    by_file, by_name = find_gpu(str(path)), find_gpu("h200", [Calibration.load(path)])
    for found in (by_file, by_name):
        assert found.name == "NVIDIA H200" and found.tb_per_s == 4.8
        assert found.calibration is not None and found.calibration.shapes == ["llama-3.2-3b"]
        assert found.memory_bytes == pytest.approx(139.8 * 2**30)
    path.write_text(json.dumps(made | {"hardware": {"cpu": "Some Processor"}}))
    found = find_gpu(str(path))
    assert (found.name, found.tb_per_s, found.memory_bytes) == ("Some Processor", None, None)
    assert find_gpu("some processor", [Calibration.load(path)]).calibration is not None
