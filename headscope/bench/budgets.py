"""Budgets of quality: which settings are within one, and where both branches save the same at equal quality."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from headscope.accounting.crossover import Keep
from headscope.accounting.ledger import Account

BUDGETS = (0.1, 0.2, 0.5, 1.0)  # rises of perplexity


@dataclass(frozen=True)
class Setting:
    """What a setting costs and is worth. rise: of perplexity over the dense model. ms: of a step, as screened."""

    keep: Keep
    rise: float
    ms: float

    @property
    def single(self) -> bool:
        """Whether at most one branch is on."""
        return self.keep.act == 1 or self.keep.kv == 1

    @property
    def dense(self) -> bool:
        """Whether none is."""
        return self.keep.act == self.keep.kv == 1


def within(settings: Iterable[Setting], budget: float, *, single: bool = False) -> list[Setting]:
    """Give the settings whose perplexity rises by at most a budget, fastest first; the dense one is always there."""
    allowed = [each for each in settings if each.dense or each.rise <= budget]
    return sorted((each for each in allowed if each.single or not single), key=lambda each: each.ms)


def keep_at(points: Sequence[tuple[float, float]], budget: float) -> float | None:
    """Give the lowest keep ratio at which a branch alone stays within a budget.

    points: (keep ratio, rise) as measured; at 1 the rise is 0. On the line between the first ratio, from above, that is
    too much and the one before it; the lowest of all where none is. None without points.
    """
    if not points:
        return None
    before, spent = 1.0, 0.0
    for keep, rise in sorted(points, reverse=True):
        if rise > budget:
            return before - (before - keep) * (budget - spent) / (rise - spent)
        before, spent = keep, rise
    return before


def equal_quality(settings: Sequence[Setting], budget: float, account: Account) -> dict[str, float | None]:
    """Give the crossover at equal rises of perplexity instead of equal keep ratios (ByteCross, quality budgets).

    Each branch alone takes the keep ratio that just spends the budget. None where a branch saves nothing within it.
    """
    act = keep_at([(each.keep.act, each.rise) for each in settings if each.keep.kv == 1 and each.keep.act < 1], budget)
    kv = keep_at([(each.keep.kv, each.rise) for each in settings if each.keep.act == 1 and each.keep.kv < 1], budget)
    tokens = None
    if act is not None and kv is not None and act < 1 and kv < 1:
        tokens = replace(account, keep=Keep(act, kv)).crossover_tokens
    return {"budget": budget, "keep_act": act, "keep_kv": kv, "crossover_tokens": tokens}
