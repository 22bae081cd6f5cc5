"""Layers at calibration: what enters each projection, and what a layer gives when small inputs are left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headscope.families import language_model
from headscope.families.projections import PROJECTIONS, SHARED, projections
from headscope.sparsity.histogram import Histogram
from headscope.sparsity.sample import Sample

INPUTS = tuple(dict.fromkeys(SHARED))  # the first of the projections that share an input


def run(model: nn.Module, sample: Sample) -> None:
    """Run the decoder stack over a sample, without a cache."""
    stack: Any = language_model(model)
    device = next(stack.parameters()).device
    moved = {name: value.to(device) if isinstance(value, Tensor) else value for name, value in sample.arguments.items()}
    with torch.no_grad():
        stack(**moved, use_cache=False)


@contextmanager
def counted(model: nn.Module, first: Callable[[], int]) -> Iterator[list[dict[str, Histogram]]]:
    """Count the magnitudes that enter each input of each layer inside the block, from token `first()` on."""
    layers = projections(model)
    found = [{name: Histogram(_device(layer[name])) for name in INPUTS} for layer in layers]

    def hook(histogram: Histogram) -> Callable[..., None]:
        return lambda _module, args: histogram.add(args[0][:, first() :])

    with ExitStack() as exits:
        for layer, histograms in zip(layers, found, strict=True):
            for name, histogram in histograms.items():
                exits.callback(layer[name].register_forward_pre_hook(hook(histogram)).remove)
        yield found


class _Caught(Exception):
    """Ends a forward pass once a layer's inputs are known."""


@dataclass(frozen=True, eq=False)
class Probe:
    """One layer with what enters it at some samples. calls: (arguments, keywords) of its forward, one a sample.

    firsts: the first token that counts, of each. expected: what the dense layer gives there, fp32 [token, width].
    """

    layer: nn.Module
    modules: dict[str, nn.Module]
    calls: Sequence[tuple[tuple[Any, ...], dict[str, Any]]]
    firsts: Sequence[int]
    expected: Sequence[Tensor]

    @classmethod
    def of(cls, model: nn.Module, index: int, samples: Sequence[Sample]) -> Probe:
        """Run the model up to a layer on each sample, and the layer itself."""
        stack: Any = language_model(model)
        calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

        def catch(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            calls.append((args, kwargs))
            raise _Caught

        handle = stack.layers[index].register_forward_pre_hook(catch, with_kwargs=True)
        try:
            for sample in samples:
                try:
                    run(model, sample)
                except _Caught:
                    continue
        finally:
            handle.remove()
        firsts = [sample.first for sample in samples]
        probe = cls(stack.layers[index], projections(model)[index], calls, firsts, [])
        return cls(probe.layer, probe.modules, calls, firsts, [probe.output(at) for at in range(len(calls))])

    @torch.no_grad()
    def output(self, at: int) -> Tensor:
        """Run the layer on one sample: fp32 [token, width] of the tokens that count."""
        args, kwargs = self.calls[at]
        given = self.layer(*args, **kwargs)
        hidden = given[0] if isinstance(given, tuple) else given
        return hidden[0, self.firsts[at] :].float()

    def error(self, thresholds: Sequence[float]) -> float:
        """Give the squared error of the layer's output, relative to its square, without inputs under the thresholds.

        thresholds: one a projection, in their order; 0: none left out. Only tokens that count lose inputs.
        """
        wrong = right = 0.0
        for at, expected in enumerate(self.expected):
            with ExitStack() as exits:
                for name, threshold in zip(PROJECTIONS, thresholds, strict=True):
                    if threshold > 0:
                        hook = _mask(threshold, self.firsts[at])
                        exits.callback(self.modules[name].register_forward_pre_hook(hook).remove)
                wrong += float((self.output(at) - expected).square().sum())
            right += float(expected.square().sum())
        return wrong / right if right else 0.0


def _mask(threshold: float, first: int) -> Callable[..., tuple[Tensor, ...]]:
    def hook(_module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        small = args[0].abs().float() <= threshold
        small[:, :first] = False
        return (args[0].masked_fill(small, 0), *args[1:])

    return hook


def _device(module: nn.Module) -> torch.device:
    return next(module.parameters()).device
