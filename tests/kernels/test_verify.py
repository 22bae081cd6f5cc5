"""Verify attention over ragged segments: the reference against PyTorch, the kernel against the reference."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from headscope.kernels import ragged_decode, ragged_verify
from headscope.kernels.verify import launch, main_part, reference
from headscope.kernels.verify_tuning import Tuning, tuning
from tests.kernels.ragged import Ragged, normal, ragged

LENGTHS = {
    "shorter than the new tokens": [[1, 0], [5, 2]],
    "odd and equal": [[65, 65]],
    "empty ones": [[0, 130], [1, 0]],
    "all empty": [[0, 0]],
    "very unequal": [[3, 301, 1]],
    "the causal edge in two tiles": [[129, 70]],
}
FORMS = [  # group, new, dim, dtype
    (1, 2, 32, torch.float32),
    (4, 3, 80, torch.float32),
    (1, 16, 64, torch.bfloat16),
    (4, 9, 96, torch.float16),
    (16, 2, 64, torch.bfloat16),
    (7, 5, 80, torch.bfloat16),
    (7, 10, 128, torch.bfloat16),
    (7, 16, 32, torch.float16),
    (2, 7, 256, torch.bfloat16),
    (2, 9, 72, torch.bfloat16),
    (4, 40, 64, torch.bfloat16),
]
CASES = [(lengths, (2, 7, 64, torch.bfloat16)) for lengths in LENGTHS.values()]
CASES += [([[133]], form) for form in FORMS]


def distance(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float((found.double() - exact.double()).norm())


def pytorch(query: torch.Tensor, given: Ragged, scaling: float) -> torch.Tensor:
    """Attend with PyTorch in the query's dtype, one segment at a time; zeros for a query that sees nothing."""
    _, head, new, dim = query.shape
    queries = query.view(-1, head // given.lengths.shape[1], new, dim)
    output = torch.zeros_like(queries)
    for index, own in enumerate(given.segments):
        length = own.stop - own.start
        seen = length - (new - 1 - torch.arange(new, device=query.device))[:, None]
        mask = torch.arange(length, device=query.device) < seen
        some = mask.any(-1)
        if some.any():
            keys, values = (buffer[own].to(query.dtype) for buffer in (given.key, given.value))
            for head_query, head_output in zip(queries[index], output[index], strict=True):
                attended = F.scaled_dot_product_attention(
                    head_query[some][None], keys[None], values[None], mask[some][None], scale=scaling
                )
                head_output[some] = attended[0]
    return output.view(query.shape)


def case(
    lengths: list[list[int]], group: int, new: int, dim: int, dtype: torch.dtype, device: str = "cpu"
) -> tuple[torch.Tensor, Ragged]:
    given = ragged(lengths, dim, dtype, device)
    return normal(len(lengths), group * len(lengths[0]), new, dim, dtype=dtype, device=device), given


def attend(query: torch.Tensor, given: Ragged, scaling: float = 0.2) -> tuple[torch.Tensor, torch.Tensor]:
    return ragged_verify(query, given.key, given.value, given.starts, given.lengths, scaling)


@pytest.mark.parametrize("new", [2, 5])
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_the_reference_is_causal_attention_in_each_segment(lengths: list[list[int]], new: int) -> None:
    query, given = case(lengths, 3, new, 8, torch.float32)
    output, lse = reference(query, given.key, given.value, given.starts, given.lengths, 0.3)
    assert torch.allclose(output, pytorch(query, given, 0.3), atol=1e-6)
    seen = (given.lengths[..., None] - (new - 1 - torch.arange(new))).repeat_interleave(3, 1)
    assert torch.equal(lse.isneginf(), seen <= 0)
    assert not output[lse.isneginf()].any()


@pytest.mark.parametrize("new", [3, 700])
def test_the_reference_is_the_same_in_pieces(new: int, monkeypatch: pytest.MonkeyPatch) -> None:
    query, given = case([[900, 3]], 2, new, 8, torch.float32)
    inputs = query, given.key, given.value, given.starts, given.lengths, 0.2
    whole = reference(*inputs)
    monkeypatch.setattr("headscope.kernels.verify.CHUNK_BYTES", 4 * 4 * 900 * 2)  # two queries at a time
    for found, expected in zip(reference(*inputs), whole, strict=True):
        assert torch.allclose(found, expected, atol=1e-6)


def test_each_query_is_a_step_of_decode_attention() -> None:
    query, given = case([[40, 7], [0, 3]], 2, 4, 8, torch.float32)
    output, lse = attend(query, given)
    for step in range(4):
        lengths = (given.lengths - (3 - step)).clamp_min(0)
        expected = ragged_decode(query[:, :, step], given.key, given.value, given.starts, lengths, 0.2)
        assert torch.allclose(output[:, :, step], expected[0], atol=1e-6)
        assert torch.allclose(lse[:, :, step], expected[1], atol=1e-6)


def test_one_query_is_decode_attention() -> None:
    query, given = case([[40, 7]], 2, 1, 8, torch.float32)
    expected = ragged_decode(query[:, :, 0], given.key, given.value, given.starts, given.lengths, 0.2)
    output, lse = attend(query, given)
    assert torch.equal(output[:, :, 0], expected[0]) and torch.equal(lse[..., 0], expected[1])


@pytest.mark.gpu
@pytest.mark.parametrize(("lengths", "form"), CASES, ids=str)
def test_the_kernel_is_at_most_twice_as_far_from_fp32_as_pytorch(
    lengths: list[list[int]], form: tuple[int, int, int, torch.dtype], device: str
) -> None:
    group, new, dim, dtype = form
    query, given = case(lengths, group, new, dim, dtype, device)
    output, lse = attend(query, given, dim**-0.5)
    exact, exact_lse = reference(
        query.float(), given.key.float(), given.value.float(), given.starts, given.lengths, dim**-0.5
    )
    rounding = 1e-6 * float(exact.norm())  # fp32's own, where PyTorch happens to be exact
    honest = distance(pytorch(query, given, dim**-0.5), exact)
    assert distance(output, exact) <= 2 * honest + rounding
    assert torch.equal(lse.isneginf(), exact_lse.isneginf())
    assert torch.allclose(lse, exact_lse, atol=1e-5, rtol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize(("shares", "rows"), [(1, 16), (5, 16), (40, 16), (2, 64)])
def test_any_number_of_shares_and_rows_gives_the_same_attention(shares: int, rows: int, device: str) -> None:
    query, given = case([[5, 0, 103]], 4, 5, 32, torch.float32, device)
    inputs = query, given.key, given.value, given.starts, given.lengths, 0.2
    output, lse = launch(*inputs, Tuning(rows, 16, 4, 2, shares))
    exact, exact_lse = reference(*inputs)
    assert torch.allclose(output, exact, atol=1e-5)
    assert torch.allclose(lse, exact_lse, atol=1e-5)


@pytest.mark.gpu
def test_more_segments_than_are_read_at_a_time(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headscope.kernels.verify.BLOCK", 4)
    query, given = case([[0, 0, 70, 0, 0, 1, 65, 200, 0, 0, 3]], 1, 3, 32, torch.float32, device)
    exact, _ = reference(query, given.key, given.value, given.starts, given.lengths, 0.2)
    assert torch.allclose(attend(query, given)[0], exact, atol=1e-5)


@pytest.mark.gpu
def test_a_key_that_is_not_a_number_shows_only_where_it_is_seen(device: str) -> None:
    query, given = case([[70, 70]], 2, 4, 32, torch.float32, device)
    given.key[given.segments[0].stop - 2] = torch.nan
    output, lse = attend(query, given)
    assert output[0, :2, 2:].isnan().all() and lse[0, :2, 2:].isnan().all()
    assert output[0, :2, :2].isfinite().all() and lse[0, :2, :2].isfinite().all()
    assert output[0, 2:].isfinite().all() and lse[0, 2:].isfinite().all()


@pytest.mark.gpu
def test_queries_need_not_lie_together(device: str) -> None:
    query, given = case([[70, 33]], 3, 4, 32, torch.float32, device)
    strided = query.transpose(1, 2).contiguous().transpose(1, 2)
    for found, expected in zip(attend(strided, given), attend(query, given), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("dim", [8, 32, 64, 72, 80, 96, 128, 256, 512])
def test_up_to_128_rows_are_read_for_at_once(dim: int) -> None:
    for pairs in (1, 16, 17, 64, 65, 128):
        assert tuning(dim, pairs, torch.bfloat16).rows >= pairs
    assert tuning(dim, 129, torch.bfloat16).rows == 128


def test_a_head_dim_of_two_powers_of_2_is_not_padded() -> None:
    assert {dim: main_part(dim) for dim in (16, 72, 80, 96, 128, 192)} == {
        16: 16, 72: 72, 80: 64, 96: 64, 128: 128, 192: 128
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query": torch.zeros(1, 4, 8)}, "`query` must be \\[row, head, new, dim\\] .* got \\[1, 4, 8\\]"),
        ({"query": torch.zeros(1, 3, 2, 8)}, "`query` must be .* a multiple of 2 heads, .* got \\[1, 3, 2, 8\\]"),
        ({"query": torch.zeros(1, 4, 0, 8)}, "`query` must be .* at least one new token .* got \\[1, 4, 0, 8\\]"),
        ({"query": torch.zeros(1, 4, 2, 8).half()}, "`query` must have the keys' dtype torch.float32, got .*float16"),
        ({"value": torch.zeros(13, 8)}, "`key` and `value` must be .* of one shape and dtype"),
        ({"scaling": 0.0}, "`scaling` must be above 0, got 0.0"),
    ],
)
def test_inputs_of_a_wrong_form_are_named(change: dict[str, torch.Tensor], message: str) -> None:
    given = ragged([[5, 3]], 8, torch.float32)
    inputs = {"query": torch.zeros(1, 4, 2, 8), **vars(given), "scaling": 1.0, **change}
    with pytest.raises(ValueError, match=message):
        ragged_verify(**inputs)
