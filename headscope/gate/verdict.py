"""The verdict: whether a configuration is admitted, and exactly why not."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headscope.gate.perplexity import Rise, rise
from headscope.gate.placement import Placement
from headscope.gate.run import Measured
from headscope.gate.suite import Suite


@dataclass(frozen=True)
class Retrieval:
    """How one retrieval test went. right, distractors: of the dense model and of the configuration.

    lost: what the dense model answers and the configuration does not. gained: the other way round; it earns nothing.
    """

    name: str
    placements: int
    right: tuple[int, int]
    distractors: tuple[int, int]
    lost: tuple[Placement, ...]
    gained: tuple[Placement, ...]

    @property
    def empty(self) -> bool:
        """Whether the dense model answers nothing, so that the test cannot tell anything."""
        return self.right[0] == 0

    def to_json(self) -> dict[str, Any]:
        """Give all of it as plain data."""
        return {
            "test": self.name,
            "placements": self.placements,
            **{f"{what}_{who}": getattr(self, what)[at] for what in ("right", "distractors") for at, who in _SIDES},
            "lost": [placement.key for placement in self.lost],
            "gained": [placement.key for placement in self.gained],
        }


@dataclass(frozen=True)
class Verdict:
    """Whether a configuration is admitted. reasons: why not, a sentence each; none when it is."""

    admitted: bool
    reasons: tuple[str, ...]
    max_rise: float
    rise: Rise | None
    tests: tuple[Retrieval, ...]

    @property
    def certain(self) -> bool | None:
        """Whether the whole interval of the rise lies on one side of the budget; None without perplexity."""
        return None if self.rise is None else self.rise.high <= self.max_rise or self.rise.low > self.max_rise

    def to_json(self) -> dict[str, Any]:
        """Give all of it as plain data."""
        return {
            "admitted": self.admitted,
            "reasons": list(self.reasons),
            "max_rise": self.max_rise,
            "certain": self.certain,
            "perplexity": None if self.rise is None else self.rise.to_json(),
            "tests": [test.to_json() for test in self.tests],
        }


_SIDES = ((0, "dense"), (1, "configured"))


def judge(suite: Suite, dense: Measured, configured: Measured, *, max_rise: float = 0.5, seed: int = 0) -> Verdict:
    """Judge a configuration against the dense model on the same suite.

    It is admitted when its perplexity rises by at most `max_rise` (the estimate; the interval says how sure that is)
    and it answers every placement that the dense model answers. A placement that the dense model misses is not held
    against it; but where the dense model answers none at all, nothing is shown, and nothing is admitted on that.
    """
    check_max_rise(max_rise)
    names = [window.name for window in suite.windows]
    risen = None
    if names:
        risen = rise([dense.windows[name] for name in names], [configured.windows[name] for name in names], seed=seed)
    tests = _tests(suite.placements, dense, configured)
    reasons = _reasons(risen, tests, max_rise)
    return Verdict(not reasons, tuple(reasons), max_rise, risen, tests)


def check_max_rise(max_rise: float) -> None:
    """Refuse a budget that is no rise."""
    if not (math.isfinite(max_rise) and max_rise >= 0):
        raise ValueError(f"`max_rise` must be a rise of perplexity, at least 0, got {max_rise}")


def _tests(placements: Sequence[Placement], dense: Measured, configured: Measured) -> tuple[Retrieval, ...]:
    by_name: dict[str, list[Placement]] = {}
    for placement in placements:
        by_name.setdefault(placement.test, []).append(placement)
    return tuple(_test(name, of_it, dense, configured) for name, of_it in by_name.items())


def _test(name: str, placements: Sequence[Placement], dense: Measured, configured: Measured) -> Retrieval:
    pairs = [(placement, dense.answers[placement.key], configured.answers[placement.key]) for placement in placements]
    return Retrieval(
        name,
        len(pairs),
        (sum(first.right for _, first, _ in pairs), sum(second.right for _, _, second in pairs)),
        (sum(first.distractor for _, first, _ in pairs), sum(second.distractor for _, _, second in pairs)),
        tuple(placement for placement, first, second in pairs if first.right and not second.right),
        tuple(placement for placement, first, second in pairs if second.right and not first.right),
    )


def _reasons(risen: Rise | None, tests: Sequence[Retrieval], max_rise: float) -> list[str]:
    found = []
    if risen is not None and not risen.rise <= max_rise:
        found.append(
            f"perplexity rises by {risen.rise:.3f} ({risen.low:.3f} .. {risen.high:.3f}), "
            f"more than the {max_rise:g} allowed"
        )
    for test in tests:
        if test.lost:
            found.append(
                f"{test.name}: {len(test.lost)} of the {test.right[0]} placements that the dense model answers "
                f"are lost, {_where(test.lost)}"
            )
    if tests and all(test.empty for test in tests):
        found.append(
            "the dense model answers none of the placements, so they show nothing; "
            "take a shorter context or other tests"
        )
    return found


def _where(lost: Sequence[Placement]) -> str:
    """Say at which depths placements were lost, and how many at each."""
    counts = Counter(placement.depth for placement in lost)
    return "at " + ", ".join(f"depth {depth:g}: {count}" for depth, count in sorted(counts.items()))
