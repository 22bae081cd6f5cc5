"""A prediction: where the branches of a model cross on a machine, from the account and a calibration alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from headscope.accounting.calibration import Calibration, Fit
from headscope.accounting.cell import Cell
from headscope.accounting.crossing import gap_growth_ms, latency_crossing
from headscope.accounting.crossover import Keep, crossover
from headscope.accounting.ledger import Account


@dataclass(frozen=True)
class Prediction:
    """tokens: where the latencies cross, n_lat. byte_tokens: where the savings do, n*.

    growth_ms: s, for 1024 tokens more. tb_per_s: the effective bandwidth. projection_ms, kv_ms: c_P and c_KV.
    off_tokens: by how much the farthest step of the calibration from its own fit would move the crossing.
    calibration: the campaign whose cells it comes from.
    """

    shape: str
    keep_act: float
    keep_kv: float
    tokens: float | None
    byte_tokens: float | None
    growth_ms: float
    tb_per_s: float
    projection_ms: float
    kv_ms: float
    off_tokens: float
    calibration: str

    def advantage_ms(self, context: float) -> float:
        """Give what the KV branch is predicted to be faster by at a context, while no layer slides; ms."""
        return (context - (self.byte_tokens or 0.0)) / 1024 * self.growth_ms + self.projection_ms - self.kv_ms

    def to_json(self) -> dict[str, Any]:
        """Give it as plain data."""
        return {name: round(at, 5) if isinstance(at, float) else at for name, at in asdict(self).items()}


def predict(
    calibration: Calibration, account: Account, keep: Keep, *, campaign: str, cells: Iterable[Cell], dtype: str
) -> Prediction:
    """Predict where the branches cross in a campaign of measurements.

    campaign, cells: the campaign's id and all its cells; ValueError where the calibration holds any of them.
    """
    fit = calibration.check_apart(campaign, cells).fit(account.name, account.batch, dtype)
    return from_fit(account, keep, fit, calibration.campaign)


def from_fit(account: Account, keep: Keep, fit: Fit, calibration: str) -> Prediction:
    """Predict where the branches cross, given what each costs beyond its bytes (`Fit`)."""
    shape, precision, batch = account.shape, account.precision, account.batch
    projection_ms, kv_ms = fit.cost_ms(Keep(keep.act, 1)), fit.cost_ms(Keep(1, keep.kv))
    growth = gap_growth_ms(shape, precision, batch, keep, fit.tb_per_s) * 1024
    return Prediction(
        shape=fit.shape,
        keep_act=keep.act,
        keep_kv=keep.kv,
        tokens=latency_crossing(
            shape, precision, batch, keep, tb_per_s=fit.tb_per_s, projection_ms=projection_ms, kv_ms=kv_ms
        ),
        byte_tokens=crossover(shape, precision, batch, keep),
        growth_ms=growth,
        tb_per_s=fit.tb_per_s,
        projection_ms=projection_ms,
        kv_ms=kv_ms,
        off_tokens=1024 * fit.residual_ms / growth if growth else 0.0,
        calibration=calibration,
    )
