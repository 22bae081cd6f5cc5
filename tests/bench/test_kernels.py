"""The kernels' benchmark: its lengths, and what it says without a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from headscope.bench.kernels import CELLS, run
from headscope.bench.ragged import Cell, budget_lengths, equal_lengths, ragged_lengths


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: str(cell.name))
def test_ragged_lengths_hold_as_many_tokens_as_equal_ones(cell: Cell) -> None:
    lengths = ragged_lengths(cell)
    assert 0 <= sum(equal_lengths(cell)) - sum(lengths) < len(lengths)  # rounded down
    assert min(lengths) >= 64
    assert max(lengths) > 1.5 * cell.length


def test_the_budget_is_very_unequal() -> None:
    lengths = budget_lengths(Cell(12, 4, 7, 128, 21845))
    assert sum(lengths) == 48 * 21845
    assert max(lengths) > 50 * min(lengths)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_nothing_is_measured(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="measured on a GPU"):
        run(tmp_path / "out.json")
    assert not list(tmp_path.iterdir())
