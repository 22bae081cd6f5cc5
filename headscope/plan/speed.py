"""Speed: how long a step takes on a GPU, by the best evidence there is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headscope.accounting.calibration import Calibration, Fit
from headscope.accounting.crossing import byte_ms
from headscope.accounting.crossover import Keep
from headscope.accounting.layout import read_shape
from headscope.accounting.ledger import Account
from headscope.accounting.step import step_bytes
from headscope.plan.evidence import Evidence
from headscope.plan.gpu import Gpu
from headscope.plan.option import DENSE
from headscope.plan.results import SameShape, Step


@dataclass(frozen=True)
class Speed:
    """How fast steps of an account are on a GPU. steps: that were measured, anywhere. same: see `results`."""

    account: Account
    gpu: Gpu
    steps: Sequence[Step]
    same: SameShape

    def of(self, keep: Keep) -> tuple[float, Evidence]:
        """Give the ms of a step: measured here, else predicted by the calibration, else what the bytes allow.

        Raises ValueError for a GPU of which nothing is known.
        """
        return self.measured(keep) or self.predicted(self.bytes(keep), keep) or self._bound(keep)

    def measured(self, keep: Keep) -> tuple[float, Evidence] | None:
        """Give the fastest step of this shape that was measured on this GPU at this context, batch and keep ratios."""
        account = self.account
        wanted = account.context, account.batch, keep.act, keep.kv
        found = [
            step
            for step in self.steps
            if step.gpu == self.gpu.name
            and (step.cell.context, step.cell.batch, step.cell.keep_act, step.cell.keep_kv) == wanted
            and step.cell.dtype == self.account.precision.weight
            and self.same(step.cell.shape)
        ]
        best = min(found, key=lambda step: step.ms, default=None)
        return None if best is None else (best.ms, best.evidence)

    def bytes(self, keep: Keep) -> float:
        """Count what a step reads."""
        account = self.account
        sizes = account.shape, account.precision, account.context
        return step_bytes(*sizes, batch=account.batch, keep_act=keep.act, keep_kv=keep.kv).total

    def predicted(self, count: float, keep: Keep) -> tuple[float, Evidence] | None:
        """Give the ms of a step that reads so many bytes, with the kernel costs of a branch; None: not calibrated."""
        known = self.gpu.calibration
        if known is None or not known.shapes:
            return None
        for shape in known.shapes:
            if self.same(shape) and (fit := _fit(known, shape, self.account.precision.weight)) is not None:
                return self._by(known, fit, count, keep, "")
        shape = known.shapes[0]
        fit = _fit(known, shape, None)
        if fit is None:
            return None
        layers = len(self.account.shape.layers) / len(_shape_layers(shape) or self.account.shape.layers)
        scaled = replace(fit, costs={pair: cost * layers for pair, cost in fit.costs.items()})
        return self._by(known, scaled, count, keep, f", kernel costs of {shape} by the number of layers")

    def _by(self, known: Calibration, fit: Fit, count: float, keep: Keep, how: str) -> tuple[float, Evidence] | None:
        try:
            cost = fit.cost_ms(keep)
        except ValueError:
            return None
        if (keep.act, keep.kv) not in fit.costs:
            how += ", the cost between those of other keep ratios"
        if self.account.batch > 1:
            how += ", kernel costs of batch 1"
        told = f"{count / 1e9:.2f} GB at {fit.tb_per_s:.2f} TB/s and {cost:+.2f} ms of kernel cost{how}"
        return byte_ms(count, fit.tb_per_s) + cost, Evidence("predicted", told, known.origin, fit.shape, known.commit)

    def _bound(self, keep: Keep) -> tuple[float, Evidence]:
        if self.gpu.tb_per_s is None:
            raise ValueError(
                f"`gpu` {self.gpu.name} is in no table and its calibration has no such steps; "
                "run `headscope bytes calibrate` on it"
            )
        count, share = self.bytes(keep), 1.0
        if (dense := self.measured(DENSE)) is not None:  # so that options are told apart on one scale
            share = byte_ms(self.bytes(DENSE), self.gpu.tb_per_s) / dense[0]
        at = f"{count / 1e9:.2f} GB at the datasheet's {self.gpu.tb_per_s:g} TB/s"
        told = (
            f"{at}, of which the measured dense step reaches {share:.0%}"
            if share != 1
            else f"{at}; no kernel is so fast"
        )
        return byte_ms(count, self.gpu.tb_per_s * share), Evidence("bound", told)


def _fit(known: Calibration, shape: str, dtype: str | None) -> Fit | None:
    cells = [each.cell for each in known.timed if each.cell.shape == shape]
    try:
        return known.fit(shape, 1, dtype or cells[0].dtype)
    except ValueError:
        return None


def _shape_layers(shape: str) -> tuple[object, ...] | None:
    from headscope.accounting.config import load_config

    try:
        return read_shape(load_config(shape)).layers
    except (ValueError, OSError):
        return None
