"""The tail of segments in place of that of others."""

from __future__ import annotations

import pytest
import torch

from headscope.kernels.tail import copy_tail, reference
from tests.kernels.ragged import Ragged, ragged


def held(given: Ragged) -> tuple[torch.Tensor, ...]:
    return given.key, given.value, given.starts, given.lengths


@pytest.mark.gpu
@pytest.mark.parametrize("new", [1, 3, 10])
@pytest.mark.parametrize(("dim", "dtype"), [(32, torch.float32), (80, torch.bfloat16), (256, torch.float16)])
def test_the_kernel_copies_exactly(dim: int, dtype: torch.dtype, new: int, device: str) -> None:
    source = ragged([[90, 10], [33, 64]], dim, dtype, device)
    ends = []
    for way in (copy_tail, reference):
        target = ragged([[12, 40], [10, 17]], dim, dtype, device)
        way(held(source), held(target), new)
        ends.append((target.key.nan_to_num(9), target.value.nan_to_num(9)))
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(*ends, strict=True))


def test_only_the_tail_changes() -> None:
    source, target, before = (ragged([[4 + more, 9]], 8, torch.float32) for more in (3, 0, 0))
    copy_tail(held(source), held(target), 3)
    for own, theirs in zip(target.segments, source.segments, strict=True):
        assert torch.equal(target.key[own][-3:], source.key[theirs][-3:])
        assert torch.equal(target.value[own][-3:], source.value[theirs][-3:])
        assert torch.equal(target.key[own][:-3], before.key[own][:-3])


def test_segments_that_do_not_match_are_named() -> None:
    one, other = ragged([[4, 9]], 8, torch.float32), ragged([[4], [9]], 8, torch.float32)
    with pytest.raises(ValueError, match=r"`target` must have the source's segments \[1, 2\] and dim 8, got \[2, 1\]"):
        copy_tail(held(one), held(other), 1)
