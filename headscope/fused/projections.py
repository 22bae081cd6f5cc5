"""Projections of a step: dense, or inside a `hs.sparsify` block a single row's from its large inputs only."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from headscope.fused.stack import Linear
from headscope.kernels.linear import add_project, add_project_many, gate_up, gate_up_many, project, project_many
from headscope.kernels.norm import Norm
from headscope.kernels.sparse_linear import sparse_add_project, sparse_gate_up, sparse_project

EVERY = -1.0  # threshold below which no magnitude lies: all inputs count


def projected(x: Tensor, linears: Sequence[Linear], norm: Norm) -> Tensor:
    """Project rows [row, inputs] by weights side by side: [row, all outputs]."""
    weights, biases = [linear.weight for linear in linears], [linear.bias for linear in linears]
    if _plain(linears):
        return project(x, weights, biases, norm)
    if len(x) > 1:
        return project_many(x, weights, biases, norm)
    return sparse_project(x, weights, biases, _thresholds(linears), norm)


def fed_forward(x: Tensor, gate: Linear, up: Linear, norm: Norm) -> Tensor:
    """Give silu(gate) * up: [row, inputs] -> [row, outputs]."""
    biases = gate.bias, up.bias
    if _plain((gate, up)):
        return gate_up(x, gate.weight, up.weight, biases, norm)
    if len(x) > 1:
        return gate_up_many(x, gate.weight, up.weight, biases, norm)
    return sparse_gate_up(x, gate.weight, up.weight, biases, _thresholds((gate, up)), norm)


def added(x: Tensor, linear: Linear, residual: Tensor) -> Tensor:
    """Add a projection to the residual stream in place; give its squares."""
    if _plain((linear,)):
        return add_project(x, linear.weight, linear.bias, residual)
    if len(x) > 1:
        return add_project_many(x, linear.weight, linear.bias, residual)
    return sparse_add_project(x, linear.weight, linear.bias, _thresholds((linear,))[0], residual)


def _plain(linears: Sequence[Linear]) -> bool:
    """Tell whether all weights lie output by output, and all inputs count."""
    return all(linear.threshold is None and linear.weight.is_contiguous() for linear in linears)


def _thresholds(linears: Sequence[Linear]) -> list[float]:
    return [EVERY if linear.threshold is None else linear.threshold for linear in linears]
