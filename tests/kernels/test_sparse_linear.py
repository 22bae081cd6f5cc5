"""Projections that read only the weights of active inputs: the reference against dense ones, the kernels against it."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import linear

from headscope.kernels.norm import Norm, sum_squares
from headscope.kernels.sparse_linear import (
    Call,
    Split,
    Whole,
    add_project_reference,
    channel_major,
    gate_up_reference,
    masked,
    project_reference,
    sparse_add_project,
    sparse_gate_up,
    sparse_project,
    tuning,
)
from tests.kernels.ragged import normal

DTYPES = [torch.bfloat16, torch.float16, torch.float32]
TUNINGS = [Split(1, 4, 32), Split(2, 8, 16), Whole(32, 1, 4, 80), Whole(64, 2, 2, 64)]
SHAPES = [(7, (5,)), (100, (24, 16, 17)), (70, (260,))]
FORMS = [(dtype, tuned) for tuned in TUNINGS for dtype in (DTYPES if tuned in TUNINGS[::2] else DTYPES[:1])]
BELOW = -1.0  # a threshold that every magnitude is above


def drawn(inputs: int, outputs: tuple[int, ...], dtype: torch.dtype, device: str) -> tuple[torch.Tensor, list]:
    x = normal(1, inputs, dtype=dtype, device=device, seed=0)
    weights = [normal(count, inputs, dtype=dtype, device=device, seed=count) / 8 for count in outputs]
    return x, [channel_major(weight) for weight in weights]


def biases_of(weights: list[torch.Tensor]) -> list[torch.Tensor]:
    return [normal(len(weight), dtype=weight.dtype, device=str(weight.device), seed=3) for weight in weights]


def doubled(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor.double() for tensor in tensors]


def as_exact_as_pytorch(found: torch.Tensor, same: torch.Tensor, exact: torch.Tensor) -> None:
    """Hold an error against PyTorch's own in the same dtype, both measured from fp64."""
    error, honest = ((given.double() - exact).norm() / exact.norm() for given in (found, same))
    assert error <= 2 * honest + 1e-6


def test_the_reference_is_a_dense_projection_of_masked_inputs() -> None:
    x, weights = drawn(64, (24, 8), torch.float32, "cpu")
    biases = biases_of(weights)
    first, second = (torch.where(x.abs() > threshold, x, 0) for threshold in (0.5, 1.0))
    expected = [linear(first, weights[0], biases[0]), linear(second, weights[1], biases[1])]
    assert torch.equal(sparse_project(x, weights, biases, (0.5, 1.0)), torch.cat(expected, dim=-1))


def test_a_threshold_is_compared_in_fp32() -> None:
    x = torch.tensor([[0.5, 0.50390625]], dtype=torch.bfloat16)
    assert masked(x, 0.503).tolist() == [[0, 0.50390625]]  # which is what 0.503 rounds to
    assert masked(x, 0.4999).tolist() == x.tolist()


def test_an_input_at_the_threshold_is_left_out_and_nan_is_not() -> None:
    x = torch.tensor([[0.5, -0.5, 0.75, torch.nan, -torch.inf, 0.0]])
    assert masked(x, 0.5).nan_to_num(7).tolist() == [[0, 0, 0.75, 7, torch.finfo(torch.float32).min, 0]]


def test_channel_major_keeps_values_and_puts_an_inputs_weights_together() -> None:
    weight = normal(6, 4, dtype=torch.float32)
    stored = channel_major(weight)
    assert torch.equal(stored, weight) and stored.stride() == (1, 6)


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "tuned"), FORMS, ids=str)
@pytest.mark.parametrize(("inputs", "outputs"), SHAPES)
def test_the_kernels_project_as_exactly_as_pytorch(
    inputs: int, outputs: tuple[int, ...], dtype: torch.dtype, tuned: Split | Whole, device: str
) -> None:
    x, weights = drawn(inputs, outputs, dtype, device)
    biases, thresholds = biases_of(weights), (0.7, 0.1, BELOW)[: len(outputs)]
    found = Call("project", x, weights, biases, thresholds).run(tuned)[0]
    exact = project_reference(x.double(), doubled(weights), doubled(biases), thresholds)
    as_exact_as_pytorch(found, project_reference(x, weights, biases, thresholds), exact)
    assert torch.equal(found, Call("project", x, weights, biases, thresholds).run(tuned)[0])


@pytest.mark.gpu
@pytest.mark.parametrize("tuned", TUNINGS, ids=str)
def test_inputs_are_normalised_before_they_are_compared(tuned: Split | Whole, device: str) -> None:
    x, weights = drawn(70, (24, 16), torch.float32, device)
    squares = sum_squares(x) * torch.tensor([[0.25, 0.5, 0.25]], device=device)
    norm = Norm(normal(70, dtype=torch.float32, device=device, seed=9), squares, 1e-5)
    expected = project_reference(x, weights, [None, None], (0.4, 0.9), norm)
    assert torch.allclose(
        Call("project", x, weights, [None, None], (0.4, 0.9), norm).run(tuned)[0], expected, atol=1e-5
    )


@pytest.mark.gpu
@pytest.mark.parametrize("tuned", TUNINGS, ids=str)
@pytest.mark.parametrize("biased", [False, True])
def test_feed_forward_and_residual(biased: bool, tuned: Split | Whole, device: str) -> None:
    x, weights = drawn(70, (40, 40), torch.float32, device)
    biases = biases_of(weights) if biased else [None, None]
    found = Call("gate_up", x, weights, biases, (0.3, 0.8)).run(tuned)[0]
    assert torch.allclose(found, gate_up_reference(x, *weights, biases, (0.3, 0.8)), atol=1e-5)
    ours, theirs = (normal(1, 40, dtype=torch.float32, device=device, seed=4) for _ in "ot")
    squares = Call("add", x, weights[:1], biases[:1], (0.5,), residual=ours).run(tuned)[1]
    expected = add_project_reference(x, weights[0], biases[0], 0.5, theirs)
    assert squares is not None and torch.allclose(ours, theirs, atol=1e-5)
    assert torch.allclose(squares.sum(), expected.sum(), rtol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("tuned", TUNINGS, ids=str)
def test_weights_of_inactive_inputs_are_not_read(tuned: Split | Whole, device: str) -> None:
    x, weights = drawn(70, (40,), torch.float32, device)
    expected = project_reference(x, weights, [None], (0.7,))
    weights[0][:, (x.abs() <= 0.7)[0]] = torch.nan
    found = Call("project", x, weights, [None], (0.7,)).run(tuned)[0]
    assert found.isfinite().all() and torch.allclose(found, expected, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("tuned", TUNINGS, ids=str)
def test_no_active_input_at_all_leaves_the_bias(tuned: Split | Whole, device: str) -> None:
    x, weights = drawn(70, (24,), torch.float32, device)
    biases = biases_of(weights)
    assert torch.equal(Call("project", x, weights, biases, (99.0,)).run(tuned)[0], biases[0][None])


@pytest.mark.gpu
@pytest.mark.parametrize("tuned", TUNINGS, ids=str)
def test_what_is_not_a_number_shows(tuned: Split | Whole, device: str) -> None:
    x, weights = drawn(70, (24,), torch.float32, device)
    x[0, 67] = torch.nan
    assert Call("project", x, weights, [None], (0.5,)).run(tuned)[0].isnan().all()


@pytest.mark.gpu
def test_the_public_operations_run_the_kernels_on_one_row_and_agree_on_several(device: str) -> None:
    x, weights = drawn(70, (40, 40), torch.float32, device)
    rows = torch.cat([x, x.flip(1)])
    whole = sparse_project(rows, weights, [None, None], (0.4, 0.6))
    assert torch.allclose(whole[:1], sparse_project(x, weights, [None, None], (0.4, 0.6)), atol=1e-5)
    found = sparse_gate_up(x, *weights, [None, None], (0.4, 0.6))
    assert torch.allclose(found, gate_up_reference(x, *weights, [None, None], (0.4, 0.6)), atol=1e-5)
    residual = torch.zeros(1, 40, device=device)
    squares = sparse_add_project(x, weights[0], None, 0.4, residual)
    assert torch.allclose(squares.sum(), residual.square().sum(), rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": torch.zeros(8)}, "`x` must be \\[row, inputs\\], contiguous, got \\[8\\]"),
        ({"x": torch.zeros(1, 9)}, "`weights` must be \\[outputs, 9\\] of torch.float32, got \\[4, 8\\]"),
        ({"weights": [torch.zeros(4, 8).half()]}, "`weights` must be .* got \\[4, 8\\] of torch.float16"),
        ({"biases": []}, "`weights` must be 1 to 3 with a bias \\(or None\\) each, got 1 and 0"),
        ({"thresholds": (1.0, 2.0)}, "`thresholds` must be 1 numbers, one a weight, got 2"),
    ],
)
def test_inputs_of_a_wrong_form_are_named(change: dict, message: str) -> None:
    given = {"x": torch.zeros(1, 8), "weights": [torch.zeros(4, 8)], "biases": [None], "thresholds": (0.5,), **change}
    with pytest.raises(ValueError, match=message):
        sparse_project(**given)


def test_there_is_a_tuning_for_each_shape() -> None:
    assert tuning(3584, 4608) == Split(1, 4, 32)  # queries, keys and values of Qwen2-VL-7B
    assert tuning(18944, 3584) == Split(2, 4, 16)  # down
