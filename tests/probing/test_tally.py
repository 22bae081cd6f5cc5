"""The statistics of attention rows (CASES B32)."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headscope.probing.tally import Tally, first_argmax, hits


def cells(*positions: list[int]) -> list[torch.Tensor]:
    return [torch.tensor(one) for one in positions]


def test_a_hit_counts_one_over_the_number_of_cells() -> None:
    attention = torch.tensor([[[0.1, 0.2, 0.6, 0.1], [0.1, 0.2, 0.6, 0.1]]])
    tally = Tally(1, cells([2], [1, 2]), 4, [1])
    tally(0, 0, attention)
    assert tally.sums().hit.tolist() == [[1.5]]
    assert tally.sums().mass.tolist() == [[pytest.approx(0.6 + 0.8)]]


def test_the_arg_max_is_over_all_keys_so_a_sink_takes_the_hit() -> None:
    attention = torch.tensor([[[0.5, 0.1, 0.4]], [[0.1, 0.5, 0.4]]])
    tally = Tally(1, cells([2]), 3, [1])
    tally(0, 0, attention)
    sums = tally.sums()
    assert sums.hit.tolist() == [[0.0, 0.0]]
    assert sums.first_key.tolist() == [[1, 0]] and sums.first_cell.tolist() == [[0, 1]]


def test_a_head_that_always_looks_at_the_first_cell_hits_only_that_cells_word() -> None:
    attention = torch.zeros(1, 3, 6)
    attention[..., 1] = 1
    tally = Tally(1, cells([1], [2, 3], [4]), 6, [1])
    tally(0, 0, attention)
    assert tally.sums().hit.tolist() == [[1.0]]
    assert tally.sums().first_cell.tolist() == [[3]]


def test_ties_go_to_the_lowest_index() -> None:
    assert first_argmax(torch.tensor([[[0.2, 0.4, 0.4, 0.0], [0.25, 0.25, 0.25, 0.25]]])).tolist() == [[1, 0]]


@given(st.integers(1, 4), st.integers(1, 7), st.integers(1, 9), st.integers(0, 99))
def test_rows_in_chunks_add_up_to_rows_at_once(heads: int, rows: int, keys: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    attention = torch.rand(heads, rows, keys, generator=generator).softmax(-1)
    where = [torch.randperm(keys, generator=generator)[: 1 + row % keys] for row in range(rows)]
    whole, parts = Tally(1, where, keys, [0]), Tally(1, where, keys, [0])
    whole(0, 0, attention)
    for first in range(0, rows, 2):
        parts(0, first, attention[:, first : first + 2])
    for left, right in zip(vars(whole.sums()).values(), vars(parts.sums()).values(), strict=True):
        torch.testing.assert_close(left, right)


def test_hits_and_mass_agree_with_a_plain_loop() -> None:
    generator = torch.Generator().manual_seed(3)
    attention = torch.rand(5, 11, 17, generator=generator).softmax(-1)
    where = [torch.randperm(17, generator=generator)[: 1 + row % 5] for row in range(11)]
    tally = Tally(1, where, 17, [0])
    tally(0, 0, attention)
    for head in range(5):
        hit = sum(1 / len(where[row]) for row in range(11) if int(attention[head, row].argmax()) in where[row].tolist())
        mass = sum(float(attention[head, row, where[row]].sum()) for row in range(11))
        assert tally.sums().hit[0, head].item() == pytest.approx(hit)
        assert tally.sums().mass[0, head].item() == pytest.approx(mass)


def test_hits_of_no_rows_are_zero() -> None:
    assert hits(torch.zeros(3, 0, dtype=torch.int64), torch.zeros(0, 4, dtype=torch.bool)).tolist() == [0, 0, 0]
