"""Decode attention over ragged segments: the reference against PyTorch, the kernel against the reference."""

from __future__ import annotations

import pytest
import torch

from headscope.kernels import ragged_decode
from headscope.kernels.decode import Tuning, launch, reference
from tests.kernels.ragged import Ragged, normal, pytorch, ragged

LENGTHS = {
    "one token": [[1]],
    "odd and equal": [[65, 65], [65, 65]],
    "empty ones": [[0, 130], [1, 0], [0, 0]],
    "all empty": [[0, 0]],
    "very unequal": [[3, 901, 1, 64]],
    "first ones empty": [[0, 0, 0, 33]],
}
FORMS = [  # group, dim, dtype
    (1, 32, torch.float32),
    (4, 80, torch.float32),
    (1, 64, torch.bfloat16),
    (1, 96, torch.float16),
    (4, 128, torch.bfloat16),
    (7, 32, torch.bfloat16),
    (7, 80, torch.float16),
    (7, 96, torch.bfloat16),
    (16, 64, torch.bfloat16),
    (2, 256, torch.bfloat16),
]


def distance(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float((found.double() - exact.double()).norm())


def attend(given: Ragged, query: torch.Tensor, scaling: float = 0.2) -> tuple[torch.Tensor, torch.Tensor]:
    return ragged_decode(query, given.key, given.value, given.starts, given.lengths, scaling)


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_the_reference_is_attention_in_each_segment(lengths: list[list[int]]) -> None:
    given = ragged(lengths, 8, torch.float32)
    query = normal(len(lengths), 3 * len(lengths[0]), 8, dtype=torch.float32)
    output, lse = reference(query, given.key, given.value, given.starts, given.lengths, 0.3)
    assert torch.allclose(output, pytorch(query, given, 0.3, torch.float32), atol=1e-6)
    for index, own in enumerate(given.segments):
        scores = query.view(-1, 3, 8)[index] @ given.key[own].T * 0.3
        assert torch.allclose(lse.view(-1, 3)[index], scores.logsumexp(-1), atol=1e-5)
    assert torch.equal(lse.isneginf(), (given.lengths == 0).repeat_interleave(3, 1))
    assert not output[lse.isneginf()].any()


def test_a_head_reads_the_segment_of_its_group() -> None:
    given = ragged([[4, 4]], 8, torch.float32)
    given.value[given.segments[0]], given.value[given.segments[1]] = 1, 2
    assert attend(given, normal(1, 6, 8, dtype=torch.float32))[0][0, :, 0].round().tolist() == [1, 1, 1, 2, 2, 2]


@pytest.mark.gpu
@pytest.mark.parametrize(("group", "dim", "dtype"), FORMS)
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_the_kernel_is_at_most_twice_as_far_from_fp32_as_pytorch(
    lengths: list[list[int]], group: int, dim: int, dtype: torch.dtype, device: str
) -> None:
    given = ragged(lengths, dim, dtype, device)
    query = normal(len(lengths), group * len(lengths[0]), dim, dtype=dtype, device=device)
    output, lse = attend(given, query, dim**-0.5)
    exact, exact_lse = reference(
        query.float(), given.key.float(), given.value.float(), given.starts, given.lengths, dim**-0.5
    )
    rounding = 1e-6 * float(exact.norm())  # fp32's own, where PyTorch happens to be exact
    honest = distance(pytorch(query, given, dim**-0.5, dtype), exact)
    assert distance(output, exact) <= 2 * honest + rounding
    assert torch.equal(lse.isneginf(), exact_lse.isneginf())
    assert torch.allclose(lse, exact_lse, atol=1e-5, rtol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("shares", [1, 2, 5, 40])
def test_any_number_of_shares_gives_the_same_attention(shares: int, device: str) -> None:
    given = ragged([[5, 0, 333], [1, 90, 64]], 32, torch.float32, device)
    query = normal(2, 12, 32, dtype=torch.float32, device=device)
    inputs = query, given.key, given.value, given.starts, given.lengths, 0.2
    output, lse = launch(*inputs, Tuning(tile_bytes=2048, shares=shares))
    exact, exact_lse = reference(*inputs)
    assert torch.allclose(output, exact, atol=1e-5)
    assert torch.allclose(lse, exact_lse, atol=1e-5)


@pytest.mark.gpu
def test_more_segments_than_are_read_at_a_time(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headscope.kernels.decode.BLOCK", 4)
    given = ragged([[0, 0, 70, 0, 0, 1, 65, 200, 0, 0, 3]], 32, torch.float32, device)
    query = normal(1, 11, 32, dtype=torch.float32, device=device)
    exact, _ = reference(query, given.key, given.value, given.starts, given.lengths, 0.2)
    assert torch.allclose(attend(given, query)[0], exact, atol=1e-5)


@pytest.mark.gpu
def test_what_is_not_a_number_stays_in_its_segment(device: str) -> None:
    given = ragged([[70, 70]], 32, torch.float32, device)
    given.key[given.segments[0].start + 5] = torch.nan
    output, lse = attend(given, normal(1, 2, 32, dtype=torch.float32, device=device))
    assert output[0, 0].isnan().all() and lse[0, 0].isnan()
    assert output[0, 1].isfinite().all() and lse[0, 1].isfinite()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query": torch.zeros(1, 3, 8)}, "`query` must be .* a multiple of 2 heads and dim 8, got \\[1, 3, 8\\]"),
        ({"query": torch.zeros(1, 4, 8).half()}, "`query` must have the keys' dtype torch.float32, got torch.float16"),
        ({"value": torch.zeros(13, 8)}, "`key` and `value` must be .* of one shape and dtype"),
        ({"key": torch.zeros(8, 14).T}, "`key` and `value` must be contiguous"),
        (
            {"starts": torch.zeros(1, 3).long()},
            "`starts` and `lengths` must be \\[row, kv\\].* \\[1, 3\\] and \\[1, 2\\]",
        ),
        ({"lengths": torch.zeros(1, 2).long()}, "`starts` must be int64 and `lengths` int32, got .*int64 and .*int64"),
        ({"lengths": torch.zeros(1, 4).int()[:, ::2]}, "`starts` and `lengths` must be contiguous"),
    ],
)
def test_inputs_of_a_wrong_form_are_named(change: dict[str, torch.Tensor], message: str) -> None:
    given = ragged([[5, 3]], 8, torch.float32)
    inputs = {"query": torch.zeros(1, 4, 8), **vars(given), **change}
    with pytest.raises(ValueError, match=message):
        ragged_decode(**inputs, scaling=1.0)
