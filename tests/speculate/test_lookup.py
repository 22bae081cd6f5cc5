"""What followed the last tokens where they stood before is proposed, and nothing else."""

from __future__ import annotations

import pytest
import torch

from headscope.speculate.lookup import find


def proposed(row: list[int], gamma: int = 3, room: int = 6, **settings: object) -> list[int]:
    ids = torch.tensor([row + [0] * room])
    return find(ids, torch.tensor([len(row)]), gamma, **settings)[0].tolist()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ([1, 2, 3, 4, 9, 1, 2], [3, 4, 9]),
        ([5, 2, 7, 8, 9, 1, 2], [7, 8, 9]),  # one token will do where two were not there before
        ([1, 2, 3, 5, 2, 4, 1, 2], [3, 5, 2]),  # two are better than one
        ([1, 2, 5, 1, 2, 6, 1, 2], [5, 1, 2]),  # of several the first
        ([1, 2, 3, 4], [-1, -1, -1]),
        ([7, 8, 7], [8, 7, -1]),  # nothing behind the row's end
        ([7, 7], [7, -1, -1]),
        ([7], [-1, -1, -1]),
        ([3, 0, 4, 3], [0, 4, 3]),  # what stands behind a row's end is not looked at
    ],
)
def test_rows_propose_what_followed(row: list[int], expected: list[int]) -> None:
    assert proposed(row) == expected


def test_rows_of_a_batch_propose_as_they_do_alone() -> None:
    rows = [[1, 2, 3, 4, 9, 1, 2], [4, 4], [6, 5, 3, 5]]
    ids = torch.tensor([row + [8] * (12 - len(row)) for row in rows])
    found = find(ids, torch.tensor([len(row) for row in rows]), 4)
    assert found.tolist() == [proposed(row, 4) for row in rows]


def test_no_token_is_proposed_that_no_model_emits() -> None:
    assert proposed([1, 2, 3, 50, 4, 2], never=(50,)) == [3, -1, -1]
    assert proposed([1, 2, 3, 50, 4, 2], tokens=50) == [3, -1, -1]


def test_longer_runs_may_be_looked_for() -> None:
    row = [1, 2, 3, 9, 2, 3, 8, 1, 2, 3]
    assert proposed(row, 1, ngram=2) == [9]
    assert proposed([2, 3, 7, 1, 2, 3, 8, 1, 2, 3], 1, ngram=2) == [7]
    assert proposed([2, 3, 7, 1, 2, 3, 8, 1, 2, 3], 1, ngram=3) == [8]
