"""Dividing a layer's sparsity among its projections."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.sparsity.allocation import MOST, greedy, uniform

WEIGHTS = [100, 20, 20, 100, 400, 400, 400]
COSTS = st.lists(st.floats(0.01, 100), min_size=7, max_size=7)
KEEPS = st.floats(0.06, 1)


def errors(costs: Sequence[float]):
    """An error that adds up over projections and grows faster the sparser one is."""
    return lambda sparsity: sum(cost * part**2 for cost, part in zip(costs, sparsity, strict=True))


def saved(sparsity: Sequence[float]) -> float:
    return sum(part * weight for part, weight in zip(sparsity, WEIGHTS, strict=True)) / sum(WEIGHTS)


@settings(deadline=None, max_examples=60)
@given(COSTS, KEEPS, st.sampled_from([0.05, 0.1, 0.3, 1.0]), st.sampled_from([greedy, uniform]))
def test_both_rules_keep_what_is_asked_of_a_layers_bytes(costs, keep: float, step: float, rule) -> None:
    sparsity = rule(errors(costs), WEIGHTS, keep, step)
    assert saved(sparsity) == pytest.approx(1 - keep, abs=1e-9)
    assert all(0 <= part <= max(MOST, 1 - keep) + 1e-9 for part in sparsity)


@settings(deadline=None, max_examples=60)
@given(COSTS, KEEPS, KEEPS)
def test_a_lower_keep_only_ever_raises_a_projections_sparsity(costs, keep: float, other: float) -> None:
    more, less = (greedy(errors(costs), WEIGHTS, each, 0.1) for each in sorted([keep, other], reverse=True))
    assert all(low <= high + 1e-9 for low, high in zip(more, less, strict=True))


@settings(deadline=None, max_examples=60)
@given(COSTS, st.floats(0.1, 0.9))
def test_greedy_costs_no_more_than_uniform_where_errors_add_up(costs, keep: float) -> None:
    error = errors(costs)
    found = greedy(error, WEIGHTS, keep, 0.01)
    assert error(found) <= error(uniform(error, WEIGHTS, keep, 0.01)) * 1.02 + 1e-9


def test_a_projection_that_does_not_matter_goes_first() -> None:
    sparsity = greedy(errors([9, 9, 9, 9, 9, 0.01, 9]), WEIGHTS, 0.8, 0.05)
    assert sparsity[5] > 0.7 and max(sparsity[:5]) <= 0.05


def test_the_error_is_asked_far_less_often_than_projections_times_steps() -> None:
    asked = []

    def error(sparsity: Sequence[float]) -> float:
        asked.append(list(sparsity))
        return errors(range(1, 8))(sparsity)

    sparsity = greedy(error, WEIGHTS, 0.5, 0.05)
    steps = sum(part / 0.05 for part in sparsity)
    assert len(asked) < 4 * steps < 7 * steps
