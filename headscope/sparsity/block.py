"""The block: `with sparsify(model, thresholds)`, and the model as it was after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from headscope.families.projections import projections
from headscope.kernels.backend import on_triton
from headscope.kernels.sparse_linear import channel_major, masked, sparse_project
from headscope.sparsity.switch import Switch
from headscope.sparsity.thresholds import Thresholds


def sparsify(
    model: nn.Module,
    thresholds: Thresholds | str | Path,
    *,
    rows: int | None = 1,
    dense_above: int | None = 1,
    switch: Switch | None = None,
) -> AbstractContextManager[nn.Module]:
    """Let a model's decode steps read only the weights of large inputs in a `with` block; it is as it was afterwards.

    thresholds: as `calibrate` finds them, or a threshold file. A projection with threshold 0 is left alone.
    rows: a pass over more rows (sequences times tokens) is dense: on an H200 reading what two rows need took longer
    than reading all. None: no such limit, for measuring quality on many sequences at once, at no better speed.
    dense_above: a pass over more tokens of a sequence is dense, such as a prompt; None: prompts are sparse too.
    switch: turns the sparsity off and on inside the block, for a draft that the dense model verifies.

    On a GPU the weights lie input by input inside the block, transposed in place: no memory is added, shapes and values
    stay as they are, and a CUDA graph captured outside must not run inside. Elsewhere the reference runs.

    Raises ValueError for thresholds of another model, and for a model inside such a block already.
    """
    found = thresholds if isinstance(thresholds, Thresholds) else Thresholds.load(thresholds)
    for name, value in {"rows": rows, "dense_above": dense_above}.items():
        if value is not None and value < 1:
            raise ValueError(f"`{name}` must be a whole number above 0, or None for no limit, got {value}")
    layers = projections(model)
    found.check(layers)
    return _block(model, layers, found, Limits(rows, dense_above, switch or Switch()))


@dataclass(frozen=True)
class Limits:
    """When a pass is sparse: rows and tokens at most, and the switch."""

    rows: int | None
    dense_above: int | None
    switch: Switch

    def allow(self, x: Tensor) -> bool:
        """Tell whether a pass over these inputs, [..., token, input], is sparse."""
        if not self.switch.is_on:
            return False
        tokens = x.shape[-2] if x.ndim > 2 else 1
        if self.dense_above is not None and tokens > self.dense_above:
            return False
        return self.rows is None or x.shape[:-1].numel() <= self.rows


class SparseForward:
    """The forward of a projection inside a block. own: the one it stands for."""

    def __init__(self, module: Any, threshold: float, limits: Limits, stored: bool) -> None:
        self.own: Callable[..., Tensor] = module.forward
        self._module, self._threshold, self._limits, self._stored = module, threshold, limits, stored

    @property
    def headscope_sparse(self) -> float | None:
        """The threshold, for a runtime with projections of its own; None while the switch is off."""
        return self._threshold if self._limits.switch.is_on else None

    @property
    def headscope_single(self) -> bool:
        """Whether it is sparse for single rows only, as `headscope.fused` runs it."""
        return self._limits.rows == 1 and self._limits.dense_above == 1

    def __call__(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Project: from large inputs only, where the limits allow it."""
        if not self._limits.allow(x):
            return self.own(x, *args, **kwargs)
        module = self._module
        if self._stored and x.shape[:-1].numel() == 1 and x.dtype == module.weight.dtype:
            weights, biases, row = (module.weight,), (module.bias,), x.reshape(1, -1)
            return sparse_project(row, weights, biases, (self._threshold,)).view(*x.shape[:-1], -1)
        return self.own(masked(x, self._threshold), *args, **kwargs)


@contextmanager
def _block(
    model: nn.Module, layers: list[dict[str, nn.Module]], thresholds: Thresholds, limits: Limits
) -> Iterator[nn.Module]:
    if any(isinstance(vars(module).get("forward"), SparseForward) for layer in layers for module in layer.values()):
        raise ValueError("`model` is inside a `hs.sparsify` block already; leave that first")
    with ExitStack() as exits:
        for index, layer in enumerate(layers):
            values = thresholds.of_layer(index)
            for name, module in layer.items():
                if values[name] > 0:
                    exits.enter_context(_sparse(module, values[name], limits))
        yield model


@contextmanager
def _sparse(module: Any, threshold: float, limits: Limits) -> Iterator[None]:
    """Give a projection a sparse forward, and its own back afterwards."""
    had = vars(module).get("forward")
    with _stored(module) as stored:
        module.forward = SparseForward(module, threshold, limits, stored)
        try:
            yield
        finally:
            del module.forward
            if had is not None:
                module.forward = had


@contextmanager
def _stored(module: Any) -> Iterator[bool]:
    """Store a plain weight on a GPU input by input inside the block, in its own memory; tell whether that was done."""
    weight: Any = getattr(module, "weight", None)
    if type(module) is not nn.Linear or not on_triton(weight) or not weight.is_contiguous():
        yield False
        return
    before = weight.data
    flat = before.view(-1)
    flat.copy_(channel_major(before).t().reshape(-1))
    weight.data = flat.view(before.shape[1], before.shape[0]).t()
    try:
        yield True
    finally:
        flat.copy_(weight.data.reshape(-1))
        weight.data = before
