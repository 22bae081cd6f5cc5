"""A plan: the options for a model on a GPU, which of them is recommended, and what is missing to say more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from headscope.accounting import load_config
from headscope.accounting.crossover import Keep
from headscope.accounting.layout import read_shape
from headscope.accounting.ledger import Account
from headscope.accounting.speculation import MOST
from headscope.plan.drafts import speculation
from headscope.plan.evidence import Evidence
from headscope.plan.gpu import Gpu
from headscope.plan.option import DENSE, Option
from headscope.plan.results import Judgement, Results
from headscope.plan.speed import Speed

FORMAT = "headscope.plan/1"
TRIED = (Keep(1.0, 0.3), Keep(0.5, 1.0), Keep(0.5, 0.3))  # where no gate says what is worth a try
LONGER = 2  # times the gate's own prompts: so much longer a context it still speaks of


@dataclass(frozen=True)
class Plan:
    """options: the fastest first. missing: what was not known, and the command that finds it out."""

    account: Account
    gpu: Gpu
    quality: float
    options: tuple[Option, ...]
    missing: tuple[str, ...]

    @property
    def recommended(self) -> Option | None:
        """The fastest option that is admitted and fits; None where even the dense model does not fit."""
        return next((option for option in self.options if option.usable), None)

    @property
    def dense(self) -> Option:
        """The dense step."""
        return next(option for option in self.options if option.keep == DENSE and not option.gamma)

    def to_json(self) -> dict[str, Any]:
        """Give it as plain data."""
        chosen = self.recommended
        return {
            "format": FORMAT,
            "model": self.account.name,
            "gpu": {"name": self.gpu.name, "tb_per_s": self.gpu.tb_per_s, "memory_bytes": self.gpu.memory_bytes},
            "context": self.account.context,
            "batch": self.account.batch,
            "quality": self.quality,
            "recommended": None if chosen is None else chosen.to_json() | {"speed_up": self.speed_up(chosen)},
            "options": [option.to_json() | {"speed_up": self.speed_up(option)} for option in self.options],
            "crossover_tokens": replace(self.account, keep=Keep(0.5, 0.3)).crossover_tokens,
            "missing": list(self.missing),
        }

    def speed_up(self, option: Option) -> float:
        """Give how much faster than the dense step an option is."""
        return round(self.dense.ms / option.ms, 4)


def plan(
    account: Account,
    gpu: Gpu,
    results: Results,
    *,
    quality: float,
    names: Sequence[str] = (),
    acceptance: float | None = None,
) -> Plan:
    """Weigh the options for a model at the account's context and batch.

    quality: the most that perplexity may rise; 0: only what gives the dense model's own answers. names: what results
    call the model. acceptance: the chance that a speculative draft token is accepted; None: not known.
    """
    if not quality >= 0:
        raise ValueError(f"`quality` must be a rise of perplexity, at least 0, got {quality!r}")
    speed = Speed(account, gpu, list(results.steps()), _Same(account))
    judged = _judged(results, {account.name, *names})
    keeps = list(dict.fromkeys([DENSE, *judged, *TRIED]))
    if account.batch > 1:
        keeps = [keep for keep in keeps if keep.act == 1]  # sparse projections serve one row
    options = [_option(speed, keep, judged.get(keep), quality) for keep in keeps]
    drafts = [] if acceptance is None else speculation(speed, results, acceptance, MOST)
    ordered = sorted([*options, *drafts], key=lambda option: option.ms)
    return Plan(account, gpu, quality, tuple(ordered), tuple(_missing(speed, ordered, acceptance, quality)))


@dataclass
class _Same:
    """Tells whether a result's shape has the planned model's layers, whatever it is called."""

    account: Account

    def __call__(self, name: str) -> bool:
        if name == self.account.name:
            return True
        try:
            return read_shape(load_config(name)) == self.account.shape
        except (ValueError, OSError):
            return False


def _judged(results: Results, names: set[str]) -> dict[Keep, Judgement]:
    """Give the gate's findings of this model by keep ratios; of several the one with the longest prompts."""
    found: dict[Keep, Judgement] = {}
    for each in results.judgements():
        keep = Keep(each.keep_act, each.keep_kv)
        if each.model.get("id") in names and (keep not in found or found[keep].context <= each.context):
            found[keep] = each
    return found


def _option(speed: Speed, keep: Keep, judged: Judgement | None, quality: float) -> Option:
    account = replace(speed.account, keep=keep)
    ms, told = speed.of(keep)
    needed = account.memory.compressed if keep.kv < 1 else account.memory.total
    admitted, shown = _quality(keep, judged, quality, account.context)
    return Option(
        keep=keep,
        gamma=0,
        ms=ms,
        memory_bytes=needed,
        lossless=keep == DENSE,
        admitted=admitted,
        fits=None if speed.gpu.memory_bytes is None else needed < speed.gpu.memory_bytes,
        speed=told,
        quality=shown,
        memory=Evidence("account", "weights and cache; activations and workspaces come on top"),
    )


def _quality(keep: Keep, judged: Judgement | None, quality: float, context: int) -> tuple[bool, Evidence]:
    """Say whether a configuration's quality is shown to be within what is asked."""
    if keep == DENSE:
        return True, Evidence("account", "the dense model itself")
    if judged is None:
        return False, Evidence("missing", "no gate has judged it")
    if not judged.admits(quality):
        return False, judged.evidence
    if context > LONGER * judged.context:
        told = f"admitted, but on prompts of {judged.context} tokens alone"
        return False, replace(judged.evidence, kind="missing", what=told)
    return True, judged.evidence


def _missing(speed: Speed, options: Sequence[Option], acceptance: float | None, quality: float) -> list[str]:
    """Say what is not known, and which command finds it out."""
    account, found = speed.account, []
    if speed.gpu.calibration is None:
        found.append(f"no calibration of {speed.gpu.name}: run `headscope bytes calibrate` on it")
    best = next((option for option in options if option.usable), None)
    unknown = [option for option in options if option.quality.kind == "missing" and option.fits is not False]
    for option in unknown if quality > 0 else []:
        if best is None or option.ms < best.ms:
            found.append(
                f"{option.name} would be faster, {option.ms:.3f} ms, but its quality is not shown "
                f"({option.quality.what}): run {_commands(option.keep, account.context)}"
            )
    if acceptance is not None and not any(option.gamma for option in options):
        found.append(f"speculation does not pay at an acceptance of {acceptance:g}, so it is left out")
    if acceptance is None:
        costs = account.costs
        found.append(
            f"acceptance of speculative drafts: they pay above {costs.break_even(1):.0%} accepted of the proposed, by "
            "bytes; give acceptance=... to weigh them"
        )
    if account.batch > 1:
        found.append("sparse activations are left out: their kernels serve one sequence at a time")
    return found


def _commands(keep: Keep, context: int) -> str:
    """Say which commands show a configuration's quality."""
    kept = f" keep_kv={keep.kv:g}" if keep.kv < 1 else ""
    if keep.act == 1:
        return f"`headscope gate model=...{kept} context={context}`"
    return (
        f"`headscope sparsify model=... keep={keep.act:g} out=thresholds.json` and "
        f"`headscope gate model=...{kept} sparsity=thresholds.json context={context}`"
    )
