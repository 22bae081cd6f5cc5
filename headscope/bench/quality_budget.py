"""Quality budgets: the fastest of dense, single and composed settings within each rise of perplexity, gated.

A grid of settings is scored on text and screened for speed. Within each budget the fastest setting that the gate
admits is timed again in blocks, beside the dense step and the fastest single branch that the gate admits.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from headscope.accounting.crossover import Keep
from headscope.accounting.ledger import Account
from headscope.attach import compress
from headscope.bench.blocks import check_blocks, interval, said
from headscope.bench.budgets import BUDGETS, Setting, equal_quality, within
from headscope.bench.cells import Row
from headscope.bench.grid import KEEP_ACT, KEEP_KV
from headscope.families import geometry
from headscope.files import write_atomically
from headscope.gate import Measured, Policy, Suite, Verdict, dense, judge, measure
from headscope.gate.kept import Kept
from headscope.gate.perplexity import rise
from headscope.scores import HeadScores
from headscope.select import observation_window
from headscope.sparsity import Thresholds, sparsify

SELECT = partial(observation_window, pool=7, sinks=4)  # ByteCross's
DENSE = Keep(1.0, 1.0)
Tell = Callable[[str], None]


class Steps(Protocol):
    """Where the times of a setting's steps come from: this machine (`LoadedSteps`) or another's file (`GridSteps`)."""

    @property
    def context(self) -> int: ...

    def screen(self, keep: Keep) -> Row: ...

    def again(self, keeps: Sequence[Keep], blocks: int) -> dict[Keep, list[float]]: ...


@dataclass
class Bench:
    """A model and what it is measured on.

    suite: windows to score and things to find. thresholds: by keep ratio. kept: opens the records of an earlier run.
    select, window: the KV branch's.
    """

    model: Any
    suite: Suite
    steps: Steps
    thresholds: Mapping[float, Thresholds]
    select: Any = SELECT
    window: int = 64
    kept: Callable[[Keep], Kept] = field(default=lambda keep: Kept())
    tell: Tell = print

    def policies(self, keep: Keep) -> tuple[Policy, Policy]:
        """Give the policy around whole prompts, and the one around decode steps."""
        around: Policy = dense
        steps: Policy = dense
        if keep.kv < 1:
            shape = geometry(self.model.config)
            equal = HeadScores.from_values([[1.0] * shape.heads] * shape.layers, kv_heads=shape.kv_heads)
            plan: dict[str, Any] = {"scores": equal, "rule": "uniform", "window": self.window, "ratio_kept": keep.kv}
            around = lambda model: compress(model, select=self.select, pieces=False, **plan)  # noqa: E731
        if keep.act < 1:
            steps = lambda model: sparsify(model, self.thresholds[keep.act])  # noqa: E731
        return around, steps

    def score(self, keep: Keep) -> Measured:
        """Score the windows of text."""
        return self._measured(Suite(self.suite.windows, (), self.suite.text), keep)

    def find(self, keep: Keep) -> Measured:
        """Ask for everything that was hidden."""
        return self._measured(Suite((), self.suite.placements, self.suite.text), keep)

    def _measured(self, suite: Suite, keep: Keep) -> Measured:
        around, steps = self.policies(keep)
        return measure(self.model, suite, around, steps, kept=self.kept(keep))


@dataclass
class Judged:
    """Settings that were judged. windows, answers: what was measured, by setting."""

    bench: Bench
    seed: int
    windows: dict[Keep, Measured] = field(default_factory=dict)
    answers: dict[Keep, Measured] = field(default_factory=dict)

    def scored(self, keep: Keep) -> Measured:
        """Score a setting's text, once."""
        if keep not in self.windows:
            self.windows[keep] = self.bench.score(keep)
        return self.windows[keep]

    def whole(self, keep: Keep) -> Measured:
        """Measure a setting on everything, once."""
        if keep not in self.answers:
            self.answers[keep] = self.bench.find(keep)
        return Measured(self.scored(keep).windows, self.answers[keep].answers)

    def verdict(self, keep: Keep, budget: float) -> Verdict:
        """Judge a setting at a budget."""
        return judge(self.bench.suite, self.whole(DENSE), self.whole(keep), max_rise=budget, seed=self.seed)

    def rise(self, keep: Keep) -> dict[str, Any]:
        """Say by how much perplexity rises."""
        names = [window.name for window in self.bench.suite.windows]
        plain, changed = (self.scored(which).windows for which in (DENSE, keep))
        return rise([plain[name] for name in names], [changed[name] for name in names], seed=self.seed).to_json()


def run(
    bench: Bench,
    out: Path,
    header: dict[str, Any],
    account: Account,
    *,
    keep_act: Sequence[float] = KEEP_ACT,
    keep_kv: Sequence[float] = KEEP_KV,
    budgets: Sequence[float] = BUDGETS,
    blocks: int = 5,
    seed: int = 0,
) -> dict[str, Any]:
    """Score and screen the grid, choose within each budget, time what was chosen in blocks, and write all of it."""
    check_blocks(blocks)
    if not bench.suite.windows:
        raise ValueError("`tests` must have perplexity among them, which budgets are made of")
    judged = Judged(bench, seed)
    grid = [Keep(act, kv) for act, kv in itertools.product(sorted({1.0, *keep_act}), sorted({1.0, *keep_kv}))][::-1]
    rows = []
    for keep in grid:
        risen = judged.rise(keep)
        timed = bench.steps.screen(keep)
        rows.append({"keep_act": keep.act, "keep_kv": keep.kv, "perplexity": risen, **timed})
        bench.tell(
            f"{len(rows)} of {len(grid)}: keeps {keep.act:g} of activations, {keep.kv:g} of the cache; perplexity "
            f"{risen['configured']:.3f} ({risen['rise']:+.3f}), {timed['ms_per_token']:.3f} ms"
        )
    settings = [
        Setting(Keep(at["keep_act"], at["keep_kv"]), at["perplexity"]["rise"], at["ms_per_token"]) for at in rows
    ]
    chosen = [choose(judged, settings, budget) for budget in budgets]
    distinct = dict.fromkeys([DENSE, *(keep for choice in chosen for keep in (choice.best, choice.single))])
    timed_again = bench.steps.again(list(distinct), blocks)
    document = {
        "bench": "quality-budget",
        **header,
        "protocol": bench.suite.protocol,
        "context": bench.steps.context,
        "grid": rows,
        "budgets": [choice.to_json(timed_again) for choice in chosen],
        "blocks_ms": [
            {"keep_act": keep.act, "keep_kv": keep.kv, "ms_per_token": times} for keep, times in timed_again.items()
        ],
        "equal_quality": [equal_quality(settings, budget, account) for budget in budgets],
    }
    write_atomically(out, json.dumps(document, indent=1, allow_nan=False) + "\n")
    return document


@dataclass(frozen=True)
class Choice:
    """What was chosen within a budget. best: the fastest setting that is admitted; single: of single branches.

    refused: faster settings that the gate refused, with its reasons.
    """

    budget: float
    best: Keep
    single: Keep
    rise: float
    verdict: Verdict
    refused: tuple[tuple[Keep, tuple[str, ...]], ...]

    def to_json(self, times: Mapping[Keep, Sequence[float]]) -> dict[str, Any]:
        """Give it as plain data, with the speed-ups of the blocks."""
        plain, single, own = (times[keep] for keep in (DENSE, self.single, self.best))
        return {
            "budget": self.budget,
            **{f"keep_{name}": value for name, value in asdict(self.best).items()},
            "rise": self.rise,
            "single": {f"keep_{name}": value for name, value in asdict(self.single).items()},
            "ms_per_token": said(interval(own)),
            "over_dense": said(interval([slow / fast for slow, fast in zip(plain, own, strict=True)])),
            "over_single": said(interval([slow / fast for slow, fast in zip(single, own, strict=True)])),
            "admitted": self.verdict.admitted,
            "tests": [test.to_json() for test in self.verdict.tests],
            "refused": [
                {"keep_act": keep.act, "keep_kv": keep.kv, "reasons": list(reasons)} for keep, reasons in self.refused
            ],
        }


def choose(judged: Judged, settings: Sequence[Setting], budget: float) -> Choice:
    """Choose the fastest setting within a budget that the gate admits, and the fastest single branch."""
    refused: dict[Keep, tuple[str, ...]] = {}

    def first(found: Sequence[Setting]) -> Setting:
        for setting in found:
            if setting.dense:
                return setting
            verdict = judged.verdict(setting.keep, budget)
            if verdict.admitted:
                return setting
            refused[setting.keep] = verdict.reasons
        raise AssertionError("the dense setting is always there")

    best = first(within(settings, budget))
    single = best if best.single else first(within(settings, budget, single=True))
    return Choice(budget, best.keep, single.keep, best.rise, judged.verdict(best.keep, budget), tuple(refused.items()))
