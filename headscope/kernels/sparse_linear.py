"""Projections of one row that read only the weights of active inputs, those whose magnitude is above a threshold.

TEAL's decode step (Liu et al., arXiv 2408.14690). An input's weights must lie together, so weights are stored input by
input (`channel_major`). There are no atomics: equal inputs give equal bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch.nn.functional import linear, silu

from headscope.kernels import sparse_split, sparse_whole
from headscope.kernels.backend import on_triton
from headscope.kernels.linear import Bias
from headscope.kernels.norm import Norm, normed, sum_squares
from headscope.kernels.sparse_split import Split
from headscope.kernels.sparse_whole import Whole

Item = TypeVar("Item")


def masked(x: torch.Tensor, threshold: float) -> torch.Tensor:
    """Set the inputs to zero that are not above the threshold; what is not a number stays."""
    return x.masked_fill(x.abs().float() <= threshold, 0)


def project_reference(
    x: torch.Tensor,
    weights: Sequence[torch.Tensor],
    biases: Sequence[Bias],
    thresholds: Sequence[float],
    norm: Norm | None = None,
) -> torch.Tensor:
    """Project with plain PyTorch: the oracle, and the way for CPUs and several rows. See `sparse_project`."""
    x = normed(x, norm)
    each = zip(weights, biases, thresholds, strict=True)
    return torch.cat([linear(masked(x, threshold), weight, bias) for weight, bias, threshold in each], dim=-1)


def gate_up_reference(
    x: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    biases: Sequence[Bias],
    thresholds: Sequence[float],
    norm: Norm | None = None,
) -> torch.Tensor:
    """Feed forward with plain PyTorch. See `sparse_gate_up`."""
    first, second = project_reference(x, (gate, up), biases, thresholds, norm).chunk(2, dim=-1)
    return silu(first) * second


def add_project_reference(
    x: torch.Tensor, weight: torch.Tensor, bias: Bias, threshold: float, residual: torch.Tensor
) -> torch.Tensor:
    """Project onto a residual stream with plain PyTorch. See `sparse_add_project`."""
    residual += project_reference(x, (weight,), (bias,), (threshold,))
    return sum_squares(residual)


@dataclass(frozen=True, eq=False)
class Call:
    """What a kernel is asked. kind: "project", "gate_up" or "add", as in `headscope.kernels.linear`."""

    kind: str
    x: torch.Tensor
    weights: Sequence[torch.Tensor]
    biases: Sequence[Bias]
    thresholds: Sequence[float]
    norm: Norm | None = None
    residual: torch.Tensor | None = None

    @property
    def inputs(self) -> int:
        """Inputs of each weight."""
        return self.x.shape[1]

    @property
    def counts(self) -> list[int]:
        """Outputs of each weight."""
        return [weight.shape[0] for weight in self.weights]

    @property
    def columns(self) -> int:
        """Outputs of the call."""
        return sum(self.counts) if self.kind == "project" else self.counts[0]

    @property
    def biased(self) -> bool:
        """Whether there are biases."""
        return self.biases[0] is not None

    @property
    def some_biases(self) -> list[torch.Tensor]:
        """The biases, and weights in the place of those that are not there and not read."""
        each = zip(self.biases, self.weights, strict=True)
        return [weight if bias is None else bias for bias, weight in each]

    @staticmethod
    def three(items: Sequence[Item]) -> list[Item]:
        """Give three items, the first again for those that are not there and not read."""
        return [*items, *[items[0]] * (3 - len(items))]

    def results(self, parts: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Make what a kernel writes: the output (the residual, where there is one), and for "add" the squares."""
        squares = self.x.new_empty(1, parts, dtype=torch.float32) if self.kind == "add" else None
        return self.x.new_empty(1, self.columns) if self.residual is None else self.residual, squares

    def run(self, tuned: Split | Whole | None = None) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Run the kernels."""
        tuned = tuned or tuning(self.inputs, sum(self.counts))
        if isinstance(tuned, Whole):
            return sparse_whole.launch(self, tuned)
        return sparse_split.launch(self, tuned)


def tuning(inputs: int, outputs: int) -> Split | Whole:
    """Give what was fastest on an H200 in bf16, at half of the inputs, on the projections of 7B and 8B models."""
    if inputs * outputs < 2**25:  # queries, keys and values; the attention's output
        return Split(words=1, together=4, finish=32)
    return Split(words=2, together=4, finish=32 if outputs > 2 * inputs else 16)


def channel_major(weight: torch.Tensor) -> torch.Tensor:
    """Give the same [outputs, inputs] with each input's weights together in memory: stride (1, outputs)."""
    return weight.t().contiguous().t()


def on_kernel(x: torch.Tensor, weights: Sequence[torch.Tensor]) -> bool:
    """Tell whether the kernels serve this row and these weights.

    One row only: on an H200 the inputs that two rows need at a half each took longer than all inputs do.
    """
    stored = all(weight.stride(0) == 1 and weight.stride(1) == weight.shape[0] for weight in weights)
    return stored and on_triton(x) and x.shape[0] == 1


def sparse_project(
    x: torch.Tensor,
    weights: Sequence[torch.Tensor],
    biases: Sequence[Bias],
    thresholds: Sequence[float],
    norm: Norm | None = None,
) -> torch.Tensor:
    """Project by up to three weights side by side, each from its own active inputs, normalised first if asked.

    x: [row, inputs], contiguous. weights: each [outputs, inputs] in the dtype of `x`, as `channel_major` gives them;
    the reference serves other layouts, and several rows. biases: each [outputs], or all None. thresholds: one a weight:
    an input counts where its magnitude is above, compared in fp32; below 0, all do. Gives [row, all outputs].
    """
    check(x, weights, biases, thresholds)
    if on_kernel(x, weights):
        return Call("project", x, weights, biases, thresholds, norm).run()[0]
    return project_reference(x, weights, biases, thresholds, norm)


def sparse_gate_up(
    x: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    biases: Sequence[Bias],
    thresholds: Sequence[float],
    norm: Norm | None = None,
) -> torch.Tensor:
    """Give silu(x gate^T) * (x up^T), each from its own active inputs. See `sparse_project`."""
    check(x, (gate, up), biases, thresholds)
    if on_kernel(x, (gate, up)):
        return Call("gate_up", x, (gate, up), biases, thresholds, norm).run()[0]
    return gate_up_reference(x, gate, up, biases, thresholds, norm)


def sparse_add_project(
    x: torch.Tensor, weight: torch.Tensor, bias: Bias, threshold: float, residual: torch.Tensor
) -> torch.Tensor:
    """Add a projection from active inputs to a residual stream [row, outputs] in place.

    Gives the stream's squares, float32 [row, part]. See `sparse_project`, `headscope.kernels.linear.Norm`.
    """
    check(x, (weight,), (bias,), (threshold,))
    if on_kernel(x, (weight,)):
        squares = Call("add", x, (weight,), (bias,), (threshold,), residual=residual).run()[1]
        assert squares is not None
        return squares
    return add_project_reference(x, weight, bias, threshold, residual)


def check(
    x: torch.Tensor, weights: Sequence[torch.Tensor], biases: Sequence[Bias], thresholds: Sequence[float]
) -> None:
    """Check shapes, dtypes and layout; ValueError."""
    if x.ndim != 2 or not x.is_contiguous():
        raise ValueError(f"`x` must be [row, inputs], contiguous, got {list(x.shape)}; flatten it")
    for weight in weights:
        if weight.ndim != 2 or weight.shape[1] != x.shape[1] or weight.dtype != x.dtype:
            raise ValueError(
                f"`weights` must be [outputs, {x.shape[1]}] of {x.dtype}, got {list(weight.shape)} of {weight.dtype}"
            )
    if not 1 <= len(weights) <= 3 or len(biases) != len(weights):
        raise ValueError(f"`weights` must be 1 to 3 with a bias (or None) each, got {len(weights)} and {len(biases)}")
    if len({bias is None for bias in biases}) > 1:
        raise ValueError("`biases` must be there for all weights or for none")
    if len(thresholds) != len(weights):
        raise ValueError(f"`thresholds` must be {len(weights)} numbers, one a weight, got {len(thresholds)}")
