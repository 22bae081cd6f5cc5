"""Verify attention's benchmark: what it compares with, and what it says without a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from headscope.bench.verify import CELLS, NEW, TRIED, run
from headscope.bench.verify_checks import by_segment, oracle, pytorch
from headscope.kernels.verify import reference
from tests.kernels.ragged import normal, ragged


def test_the_cells_are_those_of_the_speed_goals() -> None:
    assert all(cell.rows * cell.kvs * cell.length * cell.dim * 4 > 5e8 for cell in CELLS if cell.rows > 1)
    rows = [cell.group * new for cell in CELLS for new in NEW if cell.dim == 128]
    assert {63, 70, 112} <= set(rows)
    assert all(tuned.rows == rows for rows, tried in TRIED.items() for tuned in tried)


def test_the_oracle_by_segment_is_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headscope.bench.verify_checks.DEVICE", torch.device("cpu"))
    given = ragged([[0, 13], [4, 2]], 8, torch.float32)
    inputs = normal(2, 4, 5, 8, dtype=torch.float32), given.key, given.value, given.starts, given.lengths, 0.3
    output, lse = reference(*inputs)
    found, found_lse = oracle(inputs)
    assert torch.allclose(found, output, atol=1e-6) and torch.allclose(found_lse, lse, atol=1e-6)
    assert torch.allclose(pytorch(inputs), output, atol=1e-5)
    assert [len(keys) for _, _, keys, _ in by_segment(inputs)] == [0, 13, 4, 2]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_nothing_is_measured(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="measured on a GPU"):
        run(tmp_path / "out.json")
    assert not list(tmp_path.iterdir())
