"""Projections of a few rows, with the norm before them and the residual stream behind them."""

from __future__ import annotations

import pytest
import torch

from headscope.kernels.linear import (
    MOST_ROWS,
    add_project,
    add_project_many,
    add_project_reference,
    gate_up,
    gate_up_reference,
    project,
    project_reference,
)
from headscope.kernels.norm import Norm, sum_squares
from tests.kernels.ragged import normal

pytestmark = pytest.mark.gpu

DTYPES = [torch.bfloat16, torch.float16, torch.float32]
SHAPES = [(1, 64, 32), (1, 520, 72), (3, 264, 40), (8, 512, 96), (17, 128, 48), (32, 1032, 24)]


def drawn(rows: int, inputs: int, outputs: list[int], dtype: torch.dtype, device: str) -> tuple[torch.Tensor, ...]:
    x = normal(rows, inputs, dtype=dtype, device=device, seed=0)
    weights = [normal(count, inputs, dtype=dtype, device=device, seed=count) / 8 for count in outputs]
    return x, *weights


def norm_of(x: torch.Tensor) -> Norm:
    gain = normal(x.shape[1], dtype=x.dtype, device=str(x.device), seed=5)
    squares = x.float().pow(2)
    parts = torch.stack([squares[:, :7].sum(-1), squares[:, 7:].sum(-1)], dim=1)
    return Norm(gain, parts, 1e-6)


def wide(norm: Norm | None) -> Norm | None:
    return norm and Norm(norm.gain.float(), norm.squares, norm.eps)


def as_exact_as_pytorch(found: torch.Tensor, same: torch.Tensor, exact: torch.Tensor) -> None:
    """Hold an error against PyTorch's own in the same dtype, both measured from fp32."""
    error, honest = ((given.float() - exact).norm() / exact.norm() for given in (found, same))
    assert error <= 2 * honest + 1e-6


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "inputs", "outputs"), SHAPES)
@pytest.mark.parametrize("with_norm", [True, False])
def test_three_weights_side_by_side(
    rows: int, inputs: int, outputs: int, with_norm: bool, dtype: torch.dtype, device: str
) -> None:
    x, *weights = drawn(rows, inputs, [outputs, 24, 17], dtype, device)
    norm = norm_of(x) if with_norm else None
    biases = [normal(weight.shape[0], dtype=dtype, device=device, seed=3) for weight in weights]
    exact = project_reference(x.float(), [w.float() for w in weights], [b.float() for b in biases], wide(norm))
    as_exact_as_pytorch(project(x, weights, biases, norm), project_reference(x, weights, biases, norm), exact)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "inputs", "outputs"), SHAPES)
def test_gate_and_up_meet_in_one_kernel(rows: int, inputs: int, outputs: int, dtype: torch.dtype, device: str) -> None:
    x, gate = drawn(rows, inputs, [outputs], dtype, device)
    up, norm = gate.flip(0).contiguous(), norm_of(x)
    exact = gate_up_reference(x.float(), gate.float(), up.float(), (None, None), wide(norm))
    found = gate_up(x, gate, up, (None, None), norm)
    as_exact_as_pytorch(found, gate_up_reference(x, gate, up, (None, None), norm), exact)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "inputs", "outputs"), SHAPES)
def test_a_residual_stream_takes_a_projection_in_and_gives_its_squares(
    rows: int, inputs: int, outputs: int, dtype: torch.dtype, device: str
) -> None:
    x, weight = drawn(rows, inputs, [outputs], dtype, device)
    stream = normal(rows, outputs, dtype=dtype, device=device, seed=9)
    exact, same, found = stream.float(), stream.clone(), stream.clone()
    add_project_reference(x.float(), weight.float(), None, exact)
    add_project_reference(x, weight, None, same)
    squares = add_project(x, weight, None, found)
    as_exact_as_pytorch(found, same, exact)
    torch.testing.assert_close(squares.sum(-1, keepdim=True), sum_squares(found))


def test_calls_leave_the_counters_at_zero_and_repeat_themselves(device: str) -> None:
    x, weight = drawn(1, 4096, [40], torch.bfloat16, device)
    first = project(x, [weight], [None])
    assert all(torch.equal(project(x, [weight], [None]), first) for _ in range(3))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", [1, 3])
def test_inputs_times_gain_may_be_more_than_float16_holds(rows: int, dtype: torch.dtype, device: str) -> None:
    x, weight = drawn(rows, 1032, [40], torch.float32, device)
    x[:, 7] = 9000.0  # as some channels of some models' residual streams are
    x, weight = x.to(dtype), weight.to(dtype)
    norm = Norm(torch.full((1032,), 10.0, dtype=dtype, device=device), sum_squares(x), 1e-6)
    exact = project_reference(x.float(), [weight.float()], [None], wide(norm))
    as_exact_as_pytorch(project(x, [weight], [None], norm), project_reference(x, [weight], [None], norm), exact)


@pytest.mark.parametrize("rows", [2, MOST_ROWS])
def test_few_rows_that_go_through_pytorch_give_their_squares_too(
    rows: int, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    x, weight = drawn(rows, 64, [40], torch.float32, device)
    stream = normal(rows, 40, dtype=torch.float32, device=device, seed=9)
    squares = add_project_many(x, weight.t().contiguous().t(), None, stream)
    torch.testing.assert_close(squares.sum(-1, keepdim=True), sum_squares(stream))
