"""The number of draft tokens follows what was measured, and tries that lose stay within their share of the time."""

from __future__ import annotations

import random

import pytest

from headscope.speculate.gamma import SLACK, Auto, Fixed, accounted_cost
from tests.attach.models import MODELS


def play(acceptance: float, draft_s: float, verify_s: float = 0.0, rounds: int = 400, cost: float = 0.3) -> tuple:
    """Play rounds with costs in plain steps; give tokens for a unit of time, and the gammas that were chosen."""
    chance, chooser = random.Random(0), Auto(cost)
    time, tokens, gammas = 0.0, 0, []
    for _ in range(rounds):
        gamma = chooser.choose(15)
        stood = next((place for place in range(gamma) if chance.random() >= acceptance), gamma)
        spent = gamma * draft_s, 1 + gamma * verify_s
        chooser.learn(gamma, [stood], *spent)
        time, tokens = time + sum(spent), tokens + stood + 1
        gammas.append(gamma)
    return tokens / time, gammas


def test_a_fixed_number_is_kept_but_for_the_answers_end() -> None:
    assert [Fixed(9).choose(most) for most in (15, 9, 4, 0)] == [9, 9, 4, 0]


def test_a_draft_that_stands_and_is_cheap_drafts_far() -> None:
    speed, gammas = play(0.95, 0.1)
    assert speed > 2.5 and sum(gammas[50:]) / len(gammas[50:]) > 6


@pytest.mark.parametrize("acceptance", [0.0, 0.3, 0.6])
@pytest.mark.parametrize("cost", [0.3, 1.0])
def test_a_draft_that_does_not_pay_is_hardly_tried(acceptance: float, cost: float) -> None:
    speed, gammas = play(acceptance, 0.95, 0.02, cost=cost)
    assert speed > 1 / (1 + SLACK + 0.01)
    assert gammas[-100:].count(0) > 80


def test_a_draft_that_begins_to_stand_is_found_out() -> None:
    chooser = Auto(0.2)
    for _ in range(200):
        chooser.learn(gamma := chooser.choose(15), [0], gamma * 0.2, 1.0)
    late = []
    for _ in range(1500):
        chooser.learn(gamma := chooser.choose(15), [gamma], gamma * 0.2, 1.0)
        late.append(gamma)
    assert late[0] == 0 and min(late[-50:]) > 4


def test_the_first_rounds_are_plain_and_nothing_is_drafted_past_the_end() -> None:
    chooser = Auto(0.1)
    assert chooser.choose(15) == 0
    for _ in range(5):
        chooser.learn(0, [0], 0.0, 1.0)
    assert chooser.choose(15) > 1 and chooser.choose(1) == 1 and chooser.choose(0) == 0


def test_the_accounted_cost_falls_with_what_is_kept() -> None:
    model, _ = MODELS["llama"]()
    costs = [accounted_cost(model.config, 4096, kept, 8, model.dtype) for kept in (4096, 512, 64)]
    assert costs[0] == pytest.approx(1.0) and costs[0] > costs[1] > costs[2] > 0
    assert accounted_cost(object(), 4096, 64, 8, model.dtype) == 1.0
