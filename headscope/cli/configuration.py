"""A configuration as typed: which policies it stands for, and how a result file describes it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscope.cli.bind import bind, target
from headscope.cli.model import Model

if TYPE_CHECKING:
    from headscope.gate import Policy

NEEDS_SCORES = ("sparsemm", "headkv", "random", "adaptive")


@dataclass(frozen=True)
class Configuration:
    """keep_kv, per_head, budget: how much of the cache is kept, in one of these ways, or none. sparsity: thresholds."""

    keep_kv: float | None
    per_head: int | None
    budget: Path | None
    scores: Path | None
    rule: str
    window: int
    select: dict[str, Any]
    sparsity: Path | None

    def __post_init__(self) -> None:
        given = [name for name in ("keep_kv", "per_head", "budget") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"`{given[0]}` and `{given[1]}` exclude each other; give one of them")
        if not given and self.sparsity is None:
            raise ValueError("give what is to be judged: `keep_kv`, `per_head` or `budget`, `sparsity`, or both kinds")
        if self.keep_kv is not None and not 0 < self.keep_kv <= 1:
            raise ValueError(f"`keep_kv` must be a part of the cache, above 0 and at most 1, got {self.keep_kv}")
        for name in ("budget", "scores", "sparsity"):
            path = getattr(self, name)
            if path is not None and not path.is_file():
                raise FileNotFoundError(f"`{name}` must be a file, {path} is none")

    @property
    def keeps(self) -> bool:
        """Whether it keeps a smaller cache."""
        return self.keep_kv is not None or self.per_head is not None or self.budget is not None

    def describe(self) -> dict[str, Any]:
        """Say it as a result file does: settings, and hashes of the files it comes from."""
        described: dict[str, Any] = {}
        if self.keeps:
            described |= {"select": self.select}
        if self.budget is not None:
            described |= {"budget": self.budget.name, "budget_sha256": _sha256(self.budget)}
        elif self.keeps:
            amount = {"keep_kv": self.keep_kv} if self.per_head is None else {"per_head": self.per_head}
            described |= {**amount, "rule": self.rule, "window": self.window}
            described |= {} if self.scores is None else {"scores_sha256": _sha256(self.scores)}
        if self.sparsity is not None:
            described |= {"sparsity": self.sparsity.name, "sparsity_sha256": _sha256(self.sparsity)}
            described |= {"sparsity_keep": _keep(self.sparsity)}
        return described

    def policies(self, model: Model, loaded: Any) -> tuple[Policy, Policy]:
        """Give the policy around whole prompts, and the one around decode steps only. Tries both once."""
        from headscope.gate import dense

        around = self._smaller(model, loaded) if self.keeps else dense
        steps = _sparse(self.sparsity) if self.sparsity is not None else dense
        with around(loaded), steps(loaded):
            pass
        return around, steps

    def _smaller(self, model: Model, loaded: Any) -> Policy:
        from headscope.attach import compress

        function = target(self.select.get("_target_", ""), "select")
        settings = {name: value for name, value in self.select.items() if name != "_target_"}
        select = partial(function, **bind(function, settings, "select."))
        plan: dict[str, Any] = {"budget": self.budget}
        if self.budget is None:
            amount = {"ratio_kept": self.keep_kv} if self.per_head is None else {"per_head": self.per_head}
            plan = {"scores": self._scores(model, loaded), "rule": self.rule, "window": self.window, **amount}
        # A prompt comes in one piece here, so a layer need not hold its dense cache until the first single token.
        return lambda at: compress(at, select=select, pieces=False, **plan)

    def _scores(self, model: Model, loaded: Any) -> Any:
        """Give the scores: as given, those that ship, or, for a rule that does not look at them, equal ones."""
        from headscope.families import geometry
        from headscope.scores import HeadScores, as_scores, find_shipped

        shape = geometry(loaded.config)
        if self.scores is None and self.rule not in NEEDS_SCORES:
            return HeadScores.from_values([[1.0] * shape.heads] * shape.layers, kv_heads=shape.kv_heads)
        return as_scores(self.scores or find_shipped(model.name or model.path)).check(shape)


def _sparse(path: Path) -> Policy:
    from headscope.sparsity import sparsify

    return lambda model: sparsify(model, path)


def _keep(path: Path) -> float | None:
    """Give the part of the projections' bytes that thresholds were asked to keep."""
    from headscope.sparsity import Thresholds

    return Thresholds.load(path).provenance.get("keep")


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
