"""Packing kept keys and values into ragged segments."""

from __future__ import annotations

import pytest
import torch

from headscope.kernels import pack
from headscope.kernels.gather import reference
from tests.kernels.ragged import Ragged, normal, ragged

TOKENS = 150
LENGTHS = {
    "one token": [[1]],
    "odd": [[7, 33], [64, 65]],
    "empty ones": [[0, 130], [1, 0], [0, 0]],
    "nothing": [[0, 0]],
    "all": [[TOKENS, TOKENS, TOKENS]],
}


def kept_positions(given: Ragged) -> torch.Tensor:
    """Draw ascending positions, segment by segment."""
    generator = torch.Generator().manual_seed(3)
    lists = [
        torch.randperm(TOKENS, generator=generator)[:length].sort().values
        for length in given.lengths.flatten().tolist()
    ]
    return torch.cat(lists).to(given.key.device)


def dense(given: Ragged, seed: int) -> torch.Tensor:
    """Draw a prompt's keys or values as models give them: a transposed view."""
    row, kv = given.lengths.shape
    shape = row, TOKENS, kv, given.key.shape[1]
    return normal(*shape, dtype=given.key.dtype, device=str(given.key.device), seed=seed).transpose(1, 2)


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_each_segment_holds_its_kept_tokens_in_order(lengths: list[list[int]]) -> None:
    given = ragged(lengths, 8, torch.float32)
    positions, key, value = kept_positions(given), dense(given, 1), dense(given, 2)
    pack(key, value, positions, given.key, given.value, given.starts, given.lengths)
    parts = positions.split(given.lengths.flatten().tolist())
    for index, (own, part) in enumerate(zip(given.segments, parts, strict=True)):
        row, kv = divmod(index, given.lengths.shape[1])
        assert torch.equal(given.key[own], key[row, kv, part])
        assert torch.equal(given.value[own], value[row, kv, part])
        assert given.key[own.stop : own.stop + 3].isnan().all()


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("dim", "dtype"), [(32, torch.float32), (80, torch.bfloat16), (128, torch.bfloat16), (256, torch.float16)]
)
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_the_kernel_packs_exactly(lengths: list[list[int]], dim: int, dtype: torch.dtype, device: str) -> None:
    given, expected = ragged(lengths, dim, dtype, device), ragged(lengths, dim, dtype, device)
    sources = dense(given, 1), dense(given, 2)
    positions = kept_positions(given)
    pack(*sources, positions, given.key, given.value, given.starts, given.lengths)
    reference(*sources, positions, expected.key, expected.value, expected.starts, expected.lengths)
    assert torch.equal(given.key.nan_to_num(9), expected.key.nan_to_num(9))
    assert torch.equal(given.value.nan_to_num(9), expected.value.nan_to_num(9))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source_key": torch.zeros(1, 2, 9)}, "`source_key` must be .* \\(1, 2\\) and dim 8, got \\[1, 2, 9\\]"),
        (
            {"source_value": torch.zeros(1, 2, 9, 8).half()},
            "`source_value` must have .* torch.float32, got torch.float16",
        ),
        ({"source_value": torch.zeros(1, 2, 7, 8)}, "`source_key` and `source_value` must have the same number"),
        ({"positions": torch.zeros(2, 4).long()}, "`positions` must be contiguous int64 \\[kept\\], got .* \\[2, 4\\]"),
    ],
)
def test_inputs_of_a_wrong_form_are_named(change: dict[str, torch.Tensor], message: str) -> None:
    given = ragged([[5, 3]], 8, torch.float32)
    sources = {"source_key": torch.zeros(1, 2, 9, 8), "source_value": torch.zeros(1, 2, 9, 8)}
    inputs = {**sources, "positions": torch.zeros(8).long(), **vars(given), **change}
    with pytest.raises(ValueError, match=message):
        pack(**inputs)
