"""Gamma: how many tokens to draft in a round, fixed or chosen from what acceptance and time were measured to be."""

from __future__ import annotations

from collections import deque
from typing import Any

from headscope.accounting.speculation import MOST, best_gamma, costs

FADE = 0.97  # weight of a trial against that of the next one: about the last 30 count
PRIOR = (3.0, 1.0)  # tokens that stood and that fell before the first trial
KEPT = 8  # measurements of one kind that count: the shortest of them, since all disturbances make times longer
PLAIN_FIRST = 2  # plain rounds before the first draft: the first may have compiled something
STEPS = (0, 1, 2, 3, 4, 6, 9, 12, 15)  # what is chosen from: on a GPU each number is a graph of its own
SLACK = 0.02  # of all time so far: what trying a draft again may lose


class Fixed:
    """Always the same number of draft tokens."""

    def __init__(self, gamma: int) -> None:
        self.gamma = gamma

    def choose(self, most: int) -> int:
        """Give the number of tokens to draft, at most so many."""
        return min(self.gamma, most)

    def learn(self, gamma: int, accepted: list[int], draft_s: float, verify_s: float) -> None:
        """Nothing is learnt."""


class Auto:
    """The best number for each round; 0, plain decoding, where drafting does not pay.

    draft_cost: of one draft step, in plain steps, until it is measured.
    """

    def __init__(self, draft_cost: float) -> None:
        self.draft_cost = draft_cost
        self.stood, self.fell = PRIOR
        self.rounds = 0
        self.draft_s: deque[float] = deque(maxlen=KEPT)
        self.verify_s: dict[int, deque[float]] = {}
        self.spent = 0.0  # in plain steps, as are
        self.lost = 0.0  # against plain decoding

    @property
    def acceptance(self) -> float:
        """The chance that the next draft token stands."""
        return self.stood / (self.stood + self.fell)

    @property
    def draft(self) -> float:
        """Cost of a draft step, in plain steps."""
        return min(self.draft_s) / self.plain_s if self.draft_s else self.draft_cost

    @property
    def plain_s(self) -> float:
        """Seconds of a plain step."""
        return min(self.verify_s[0])

    def verify(self, gamma: int) -> float:
        """Cost of verifying so many tokens, in plain steps: between those that were measured, as a line runs."""
        known = sorted((at, min(times) / self.plain_s) for at, times in self.verify_s.items())
        below = max((pair for pair in known if pair[0] <= gamma), default=known[0])
        above = min((pair for pair in known if pair[0] >= gamma), default=None)
        if above is None:
            slope = max(0.0, (below[1] - 1) / below[0]) if below[0] else 0.0
            return max(1.0, below[1]) + slope * (gamma - below[0])
        if above[0] == below[0]:
            return below[1]
        return below[1] + (above[1] - below[1]) * (gamma - below[0]) / (above[0] - below[0])

    def choose(self, most: int) -> int:
        """Give the number of tokens to draft, at most so many."""
        if self.rounds < PLAIN_FIRST or most < 1:
            return 0
        best = best_gamma(self.acceptance, self.draft, self.verify, min(most, MOST))
        best = max(step for step in STEPS if step <= best)
        if best and self.lost <= SLACK * self.spent + self.draft:
            return best
        loss = self.draft + self.verify(1) - 1 - self.acceptance  # of drafting a single token
        return int(self.lost + loss <= SLACK * self.spent)

    def learn(self, gamma: int, accepted: list[int], draft_s: float, verify_s: float) -> None:
        """Note a round. accepted: of each row, how many of `gamma` tokens stood."""
        self.rounds += 1
        self.verify_s.setdefault(gamma, deque(maxlen=KEPT)).append(verify_s)
        if 0 not in self.verify_s or not accepted:
            return
        if gamma:
            self.draft_s.append(draft_s / gamma)
        for stood in accepted:
            fell = stood < gamma
            fade = FADE ** (stood + fell)
            self.stood, self.fell = self.stood * fade + stood, self.fell * fade + fell
        spent = gamma * self.draft + self.verify(gamma)
        self.spent += spent
        self.lost += spent - 1 - sum(accepted) / len(accepted)


def accounted_cost(config: Any, context: int, kept: int, batch: int, dtype: Any) -> float:
    """Give a draft step's cost in plain steps, by the bytes that both read; 1 where they cannot be counted."""
    try:
        return costs(config, context, max(1, min(kept, context)), batch, dtype=dtype).draft_cost
    except (ValueError, AttributeError):
        return 1.0
