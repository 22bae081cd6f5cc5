"""Speculation in bytes: what drafting on a smaller cache and verifying on the whole one costs, and when it pays.

Three numbers are called acceptance. Here `acceptance` is the chance p that the next draft token is accepted, given that
all before it were (the geometric model: each token alike and independent). `accepted_ratio` is StD's alpha, accepted /
proposed, tokens after the first rejection counting as proposed: alpha = (p + p^2 + ... + p^gamma) / gamma, which falls
with gamma. Tokens of a round are alpha * gamma + 1: the verifying step gives one more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headscope.accounting.config import as_config
from headscope.accounting.layout import read_shape
from headscope.accounting.precision import Precision, read_precision
from headscope.accounting.shape import Shape
from headscope.accounting.step import step_bytes

MOST = 15  # draft tokens of a round that are tried


def accepted_ratio(acceptance: float, gamma: int) -> float:
    """Give accepted / proposed of rounds of `gamma` draft tokens, alpha = (p + p^2 + ... + p^gamma) / gamma."""
    _check_acceptance(acceptance)
    return sum(acceptance**token for token in range(1, gamma + 1)) / _count("gamma", gamma)


def from_ratio(ratio: float, gamma: int) -> float:
    """Give the acceptance p of the next token that makes accepted / proposed be `ratio` at `gamma`: its inverse."""
    _check_acceptance(ratio, "ratio")
    _count("gamma", gamma)
    low, high = 0.0, 1.0
    for _ in range(60):  # halvings, to the last bit
        middle = (low + high) / 2
        low, high = (middle, high) if accepted_ratio(middle, gamma) < ratio else (low, middle)
    return high


def tokens_per_round(ratio: float, gamma: int) -> float:
    """Give the tokens of a round: alpha * gamma accepted ones, and one of the verifying step."""
    return ratio * gamma + 1


def best_gamma(
    acceptance: float,
    draft_cost: float,
    verify_cost: float | Callable[[int], float] = 1.0,
    most: int = MOST,
) -> int:
    """Choose how many tokens to draft: the gamma with the most tokens for its cost; 0 where plain decoding wins.

    tokens / cost = (1 + p + ... + p^gamma) / (gamma * draft_cost + verify_cost), against 1 of a plain step

    acceptance: the chance p that the next draft token is accepted. draft_cost, verify_cost: of one draft step and of
    one verifying step, in plain steps of the dense model; verify_cost may be a function of gamma. most: the longest
    round tried. Of equal ones the shortest wins.
    """
    _check_acceptance(acceptance)
    best, speed = 0, 1.0
    for gamma in range(1, _count("most", most) + 1):
        if (found := speed_up(acceptance, gamma, draft_cost, verify_cost)) > speed:
            best, speed = gamma, found
    return best


def speed_up(
    acceptance: float, gamma: int, draft_cost: float, verify_cost: float | Callable[[int], float] = 1.0
) -> float:
    """Give the tokens for a cost of one plain step; see `best_gamma`."""
    verify = verify_cost(gamma) if callable(verify_cost) else verify_cost
    cost = gamma * draft_cost + verify
    if not cost > 0:
        raise ValueError(f"`draft_cost` and `verify_cost` must be above 0 together, got {draft_cost!r}, {verify!r}")
    return tokens_per_round(accepted_ratio(acceptance, gamma), gamma) / cost


def break_even(draft_cost: float, gamma: int, verify_cost: float = 1.0) -> float:
    """Give the accepted / proposed at which speculation costs as much as plain decoding, weights and all.

    alpha * gamma + 1 = gamma * draft_cost + verify_cost, so alpha = draft_cost + (verify_cost - 1) / gamma: with a
    verifying step as dear as a plain one, simply the draft's cost, at any gamma.
    """
    return draft_cost + (verify_cost - 1) / _count("gamma", gamma)


def published_io(kept: int, context: int, gamma: int, ratio: float) -> float:
    """Give StD's I/O of a token, in tokens of KV: (gamma (K + m_t) + m_v + m_t) / (alpha gamma)  (StD, section 3.3).

    kept: K + m_t, what a draft reads. context: m_v + m_t. ratio: alpha, accepted / proposed. The formula leaves out the
    weights, which every step reads too, and the token that the verifying step adds.
    """
    _check_acceptance(ratio, "ratio")
    return (gamma * kept + context) / (ratio * _count("gamma", gamma)) if ratio else float("inf")


def published_break_even(kept: int, context: int, gamma: int) -> float:
    """Give StD's accepted / proposed that breaks even: (K + m_t) / (m_v + m_t) + 1 / gamma  (StD, section 3.3)."""
    return kept / _count("context", context) + 1 / _count("gamma", gamma)


@dataclass(frozen=True)
class Costs:
    """Bytes that speculation reads for a whole batch.

    kept: tokens that a KV head of the draft reads, prompt tokens and generated ones together. keep_act: the part of the
    activation channels that the draft keeps.
    """

    shape: Shape
    precision: Precision
    context: int
    kept: int
    batch: int = 1
    keep_act: float = 1.0

    @property
    def dense(self) -> float:
        """Bytes of a plain step."""
        return step_bytes(self.shape, self.precision, self.context, batch=self.batch).total

    @property
    def draft(self) -> float:
        """Bytes of one draft step: the same weights, the kept part of the cache."""
        options = {"batch": self.batch, "kept": self.kept, "keep_act": self.keep_act}
        return step_bytes(self.shape, self.precision, self.context, **options).total  # type: ignore[arg-type]

    def verify(self, gamma: int) -> float:
        """Bytes of verifying `gamma` tokens: a plain step's, with more embedding rows and more experts in use."""
        return step_bytes(self.shape, self.precision, self.context, batch=self.batch, new=gamma + 1).total

    @property
    def draft_cost(self) -> float:
        """A draft step, in plain steps."""
        return self.draft / self.dense

    def verify_cost(self, gamma: int) -> float:
        """A verifying step, in plain steps."""
        return self.verify(gamma) / self.dense

    def break_even(self, gamma: int) -> float:
        """Accepted / proposed at which speculation costs as much as plain decoding; see the function of this name."""
        return break_even(self.draft_cost, gamma, self.verify_cost(gamma))

    def io(self, gamma: int, ratio: float) -> float:
        """Bytes of a token: (gamma * draft + verify) / (alpha gamma + 1): StD's formula with what it leaves out."""
        return (gamma * self.draft + self.verify(gamma)) / tokens_per_round(ratio, gamma)

    def best_gamma(self, acceptance: float, most: int = MOST) -> int:
        """Choose how many tokens to draft; 0: none. acceptance: the chance of the next token."""
        return best_gamma(acceptance, self.draft_cost, self.verify_cost, most)

    def speed_up(self, acceptance: float, gamma: int) -> float:
        """Give the speed-up over plain decoding that the bytes allow; 1 without drafts."""
        return speed_up(acceptance, gamma, self.draft_cost, self.verify_cost) if gamma else 1.0


def costs(
    config: Any,
    context: int,
    kept: int,
    batch: int = 1,
    *,
    keep_act: float = 1.0,
    dtype: Any = None,
    weight_dtype: Any = None,
    kv_dtype: Any = None,
) -> Costs:
    """Count what speculation costs a model, in bytes; `config` as for `account`.

    context: tokens in the cache of each sequence. kept: tokens that a KV head of the draft reads on average.
    """
    found = as_config(config)
    precision = read_precision(found, dtype=dtype, weight_dtype=weight_dtype, kv_dtype=kv_dtype)
    for name, value in (("context", context), ("kept", kept), ("batch", batch)):
        _count(name, value)
    return Costs(read_shape(found), precision, context, min(kept, context), batch, keep_act)


def _check_acceptance(value: float, name: str = "acceptance") -> None:
    if isinstance(value, bool) or not 0 <= value <= 1:
        raise ValueError(f"`{name}` must be a number from 0 to 1, got {value!r}")


def _count(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"`{name}` must be a whole number above 0, got {value!r}")
    return value
