"""Plans: how many tokens each KV head of a layer keeps of prompts of known lengths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from headscope.budget import Budget, allocate
from headscope.budget.plan import FILES, find_rule
from headscope.budget.rules import adaptive
from headscope.families import Geometry
from headscope.scores import HeadScores, as_scores, find_shipped

Importances = Callable[[], Sequence[Tensor]]  # of one layer, for each row float32 [kv, prompt]

LONG = 2**20  # a prompt that no cap touches, to try a plan out


class Plan(Protocol):
    """What `compress` follows."""

    @property
    def window(self) -> int:
        """The last prompt tokens, which every head keeps."""

    @property
    def prompt(self) -> int | None:
        """The prompt's length, where the plan is for one."""

    def kept(self, layer: int, prompts: Sequence[int], importances: Importances) -> Tensor:
        """Give int64 [row, kv] for a layer and prompts of these lengths."""


@dataclass(frozen=True)
class FixedPlan:
    """A budget as it is: a shorter prompt takes min(kept, prompt)."""

    budget: Budget

    @property
    def window(self) -> int:
        return self.budget.window

    @property
    def prompt(self) -> int | None:
        return self.budget.prompt

    def kept(self, layer: int, prompts: Sequence[int], importances: Importances) -> Tensor:
        return torch.stack([self.budget.kept[layer].clamp_max(prompt) for prompt in prompts])


@dataclass(frozen=True)
class PromptPlan:
    """Scores and the keywords of `allocate`: a budget of its own for each prompt's length."""

    scores: HeadScores
    keywords: dict[str, Any]
    window: int
    prompt: None = None
    budgets: dict[int, Budget] = field(default_factory=dict)

    def kept(self, layer: int, prompts: Sequence[int], importances: Importances) -> Tensor:
        return torch.stack([self._budget(prompt).kept[layer] for prompt in prompts])

    def _budget(self, prompt: int) -> Budget:
        if prompt not in self.budgets:
            self.budgets[prompt] = self._plan(prompt)
        return self.budgets[prompt]

    def _plan(self, prompt: int) -> Budget:
        if not _below_window(self, prompt):
            return allocate(self.scores, prompt=prompt, **self.keywords)
        window = min(self.window, prompt)
        return Budget(torch.full((self.scores.layers, self.scores.kv_heads), window), window)


@dataclass(frozen=True)
class AdaptivePlan:
    """The rule `adaptive`: every layer divides an equal share of the total by what its prompt's tokens matter."""

    scores: HeadScores
    keywords: dict[str, Any]
    window: int
    prompt: None = None

    def kept(self, layer: int, prompts: Sequence[int], importances: Importances) -> Tensor:
        return torch.stack([self._row(layer, prompt, row) for prompt, row in zip(prompts, importances(), strict=True)])

    def _row(self, layer: int, prompt: int, importances: Tensor) -> Tensor:
        """Divide one layer's tokens: float32 [kv, prompt] -> int64 [kv]."""
        if _below_window(self, prompt):
            return torch.full((self.scores.kv_heads,), min(self.window, prompt))
        total = allocate(self.scores, prompt=prompt, **_amounts(self.keywords)).total
        each, extra = divmod(total, self.scores.layers)
        floor = {"floor": self.keywords["floor"]} if "floor" in self.keywords else {}
        spread = torch.ones(1, self.scores.kv_heads, dtype=torch.float64)
        window = min(self.window, prompt)
        return adaptive(spread, each + (layer < extra), window, prompt, importances=importances[None], **floor)[0]


def make_plan(budget: Budget | str | Path | None, keywords: dict[str, Any], shape: Geometry) -> Plan:
    """Make a plan of a budget, a budget file, or every keyword of `allocate`, and check that it fits the model."""
    if budget is not None and keywords:
        raise ValueError(
            f"`budget` and `{next(iter(keywords))}` exclude each other; give a budget, or `scores` and how much to keep"
        )
    if budget is not None:
        budget = budget if isinstance(budget, Budget) else Budget.load(budget)
        return FixedPlan(budget.check(shape.layers, shape.kv_heads))
    if "scores" not in keywords:
        raise ValueError("`budget` is required: a Budget, a budget file, or the keywords of `allocate` (`scores=` ...)")
    if "prompt" in keywords:
        raise ValueError("`prompt` is each prompt's own length here; leave it out, or give a Budget made by `allocate`")
    return _planned(keywords, shape)


def _planned(keywords: dict[str, Any], shape: Geometry) -> Plan:
    """Try the keywords once, so that what is wrong with them is said at once."""
    scores = _read(keywords["scores"]).check(shape)
    rest = {name: value for name, value in keywords.items() if name != "scores"}
    rule, tried = rest.get("rule", "sparsemm"), rest.get("context") or LONG
    if find_rule(rule) is adaptive:
        if unknown := sorted(rest.keys() & {"importances", "ratio"}):
            raise ValueError(f"`{unknown[0]}` cannot be given here: `adaptive` takes it from each prompt, or has none")
        plan = AdaptivePlan(scores, rest, allocate(scores, prompt=tried, **_amounts(rest)).window)
        plan.kept(0, [plan.window], lambda: [torch.zeros(scores.kv_heads, plan.window)])
        return plan
    return PromptPlan(scores, rest, allocate(scores, prompt=tried, **rest).window)


def _below_window(plan: PromptPlan | AdaptivePlan, prompt: int) -> bool:
    """Say whether a ratio leaves less of a short prompt than the window, which is kept whatever the ratio is."""
    ratio = plan.keywords.get("ratio_kept")
    return ratio is not None and ratio * prompt < plan.window


def _amounts(keywords: dict[str, Any]) -> dict[str, Any]:
    """Give the keywords that say how much is kept, with a rule that spends it without a look at the prompt."""
    return {name: value for name, value in keywords.items() if name not in ("rule", "floor")} | {"rule": "uniform"}


def _read(scores: Any) -> HeadScores:
    """Take scores as `allocate` does: as they are, from a file, or those that ship for a model's id."""
    if isinstance(scores, str) and not scores.endswith(FILES) and not Path(scores).exists():
        return as_scores(find_shipped(scores))
    return as_scores(scores)
