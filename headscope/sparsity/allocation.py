"""Allocation: how a layer's sparsity is divided among its projections."""

from __future__ import annotations

from collections.abc import Callable, Sequence

MOST = 0.95  # sparsity of a projection, at most
Error = Callable[[Sequence[float]], float]  # of a layer's output, at a sparsity of each projection


def uniform(error: Error, weights: Sequence[int], keep: float, step: float) -> list[float]:
    """Give every projection the same sparsity."""
    return [1 - keep] * len(weights)


def greedy(error: Error, weights: Sequence[int], keep: float, step: float) -> list[float]:
    """Raise one projection's sparsity by `step` at a time: the one whose rise costs least error for each byte saved.

    TEAL's block-wise search (algorithm 1), with steps of equal sparsity compared by bytes. A cost found before another
    projection's rise is taken up to date only where it is the least (a lazy search). The last step is as long as the
    layer's share of bytes asks. Which step comes next does not depend on `keep`, so a lower keep only ever raises.
    """
    sparsity = [0.0] * len(weights)
    left = (1 - keep) * sum(weights)
    now, age = error(sparsity), 0
    costs = dict.fromkeys(range(len(weights)), (0.0, -1))
    while left > 0:
        at = min(costs, key=lambda each: (costs[each][0], each))
        rise = min(step, MOST - sparsity[at])
        if costs[at][1] < age:
            raised = error([*sparsity[:at], sparsity[at] + rise, *sparsity[at + 1 :]])
            costs[at] = ((raised - now) / (rise * weights[at]), age)
            continue
        rise = min(rise, left / weights[at])
        left = max(0.0, left - rise * weights[at])
        now += costs[at][0] * rise * weights[at]
        sparsity[at] += rise
        age += 1
        if sparsity[at] >= MOST - 1e-9:
            del costs[at]
    return sparsity
