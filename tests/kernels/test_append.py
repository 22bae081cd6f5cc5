"""Appending new keys and values to ragged segments."""

from __future__ import annotations

import pytest
import torch

from headscope.kernels import append
from headscope.kernels.append import reference
from tests.kernels.ragged import normal, ragged

LENGTHS = {"one": [[1]], "odd": [[7, 33], [64, 65]], "empty ones": [[0, 13], [1, 0], [0, 0]]}


def new_tokens(shape: torch.Size, new: int, like: torch.Tensor, seed: int) -> torch.Tensor:
    """Draw new keys or values as models give them: a transposed view."""
    row, kv = shape
    return normal(row, new, kv, like.shape[1], dtype=like.dtype, device=str(like.device), seed=seed).transpose(1, 2)


def test_new_tokens_stand_behind_the_old_ones() -> None:
    given = ragged([[0, 5], [64, 2]], 8, torch.float32, slack=4)
    old = [given.key[own].clone() for own in given.segments]
    first, second = (new_tokens(given.lengths.shape, new, given.key, seed=new) for new in (3, 1))
    append(given.key, given.value, given.starts, given.lengths, first, first + 1)
    append(given.key, given.value, given.starts, given.lengths, second, second + 1)
    assert given.lengths.tolist() == [[4, 9], [68, 6]]
    for index, (own, before) in enumerate(zip(given.segments, old, strict=True)):
        row, kv = divmod(index, 2)
        assert torch.equal(given.key[own], torch.cat([before, first[row, kv], second[row, kv]]))
        assert torch.equal(given.value[own][-4:], torch.cat([first[row, kv], second[row, kv]]) + 1)


@pytest.mark.gpu
@pytest.mark.parametrize("new", [1, 2, 9, 70])
@pytest.mark.parametrize(
    ("dim", "dtype"), [(32, torch.float32), (80, torch.bfloat16), (96, torch.float16), (256, torch.bfloat16)]
)
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_the_kernel_appends_exactly(
    lengths: list[list[int]], dim: int, dtype: torch.dtype, new: int, device: str
) -> None:
    given, expected = (ragged(lengths, dim, dtype, device, slack=new + 1) for _ in range(2))
    tokens = [new_tokens(given.lengths.shape, new, given.key, seed) for seed in (1, 2)]
    append(given.key, given.value, given.starts, given.lengths, *tokens)
    reference(expected.key, expected.value, expected.starts, expected.lengths, *tokens)
    assert torch.equal(given.lengths, expected.lengths)
    assert torch.equal(given.key.nan_to_num(9), expected.key.nan_to_num(9))
    assert torch.equal(given.value.nan_to_num(9), expected.value.nan_to_num(9))


def test_new_tokens_of_a_wrong_form_are_named() -> None:
    given = ragged([[5, 3]], 8, torch.float32)
    new = torch.zeros(1, 2, 1, 8)
    with pytest.raises(ValueError, match="`new_key` must be .* \\(1, 2\\) and dim 8, got \\[1, 1, 2, 8\\]"):
        append(given.key, given.value, given.starts, given.lengths, new.transpose(1, 2), new)
    with pytest.raises(ValueError, match="`new_value` must have the buffers' dtype torch.float32, got torch.float16"):
        append(given.key, given.value, given.starts, given.lengths, new, new.half())
