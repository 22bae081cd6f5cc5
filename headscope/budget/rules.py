"""Rules: functions from KV-head scores to the prompt tokens that each KV head keeps.

    rule(scores, total, window, prompt, /, **settings) -> int64 [layer, kv]

scores: float64 [layer, kv], at least 0. total: tokens to keep in all, at least `window` a head. window: the last prompt
tokens, which every head keeps. prompt: the prompt's length, which no head exceeds; None: no cap. All rules but `full`
keep min(total, heads * prompt) tokens exactly, and each head at least min(window, prompt). In the formulas, base is the
mean of a head's tokens beyond the window; shares are rounded by the largest remainder (`shares.apportion`).

A rule of your own is a function like these. `adaptive`, which sees the prompt's attention, has a module of its own.
"""

from __future__ import annotations

import random as chance

import numpy as np
import torch
from torch import Tensor

from headscope.budget.adaptive import adaptive
from headscope.budget.room import Room
from headscope.budget.shares import apportion, fill

__all__ = ["adaptive", "full", "headkv", "pyramid", "random", "sparsemm", "uniform"]


def sparsemm(
    scores: Tensor,
    total: int,
    window: int,
    prompt: int | None,
    /,
    *,
    ratio: float = 0.1,
    paper_rounding: bool = False,
) -> Tensor:
    """Give every head a share of the tokens alike, and the rest in proportion to its score.

    beyond the window = min(prompt - window, ratio * base + lambda * score), one lambda for all heads

    SparseMM (Wang et al. 2025, arXiv 2506.05344): window, then ratio of the rest alike, then by score. Without a head
    at the prompt's length, lambda * score is its (1 - ratio) * heads * base * score / (sum of scores); what such a
    head cannot keep goes to the others by the same lambda. A higher score never gets less.

    paper_rounding: the published code instead, which keeps no promise on the total: ratio * base cut to a whole number,
    each sum rounded half to even, what exceeds the prompt dropped.
    """
    _check_part("ratio", ratio)
    if paper_rounding:
        return _published(_scored(scores), total, window, prompt, ratio)
    return _by_score(scores, Room.of(scores, total, window, prompt), ratio)


def headkv(scores: Tensor, total: int, window: int, prompt: int | None, /, *, beta: float = 1.2) -> Tensor:
    """Put base / beta of every head's tokens into one pool, and divide the pool in proportion to the scores.

    beyond the window = min(prompt - window, base - base / beta + lambda * score), one lambda for all heads

    HeadKV (Fu et al. 2024, arXiv 2410.19258): `sparsemm` with ratio = 1 - 1 / beta. Its code cuts base / beta to a
    whole number and rounds each sum; this does neither.
    """
    _check_beta(beta)
    return _by_score(scores, Room.of(scores, total, window, prompt), 1 - 1 / beta)


def random(
    scores: Tensor,
    total: int,
    window: int,
    prompt: int | None,
    /,
    *,
    ratio: float = 0.1,
    seed: int = 0,
) -> Tensor:
    """Plan as `sparsemm` does, with the scores dealt to other KV heads: what the right heads are worth, by contrast."""
    _check_part("ratio", ratio)
    return _by_score(shuffled(scores, seed), Room.of(scores, total, window, prompt), ratio)


def shuffled(scores: Tensor, seed: int) -> Tensor:
    """Deal the scores [layer, kv] to all KV heads of all layers anew; a seed gives the same deal everywhere."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"`seed` must be a whole number of at least 0, got {seed!r}")
    source = chance.Random(int(seed))
    deal = np.argsort([source.random() for _ in range(scores.numel())], kind="stable")
    return torch.from_numpy(scores.numpy().reshape(-1)[deal]).view(scores.shape)


def uniform(scores: Tensor, total: int, window: int, prompt: int | None, /) -> Tensor:
    """Give every head the same, as SnapKV does (Li et al. 2024, arXiv 2404.14469); only the scores' shape counts."""
    room = Room.of(scores, total, window, prompt)
    return room.kept(apportion(torch.full((room.heads,), room.base, dtype=torch.float64), room.spare, room.most))


def pyramid(scores: Tensor, total: int, window: int, prompt: int | None, /, *, beta: float = 20) -> Tensor:
    """Give the first layer the most and the last layer base / beta, in equal steps; only the scores' shape counts.

    beyond the window = first - layer * (first - last) / (layers - 1); last = base / beta, first = 2 * base - last;
    where first exceeds the prompt, first = prompt - window, last = 2 * base - first

    PyramidKV (Cai et al. 2024, arXiv 2406.02069); the step for short prompts is its code's, which cuts each number to a
    whole one; this does not.
    """
    _check_beta(beta)
    room = Room.of(scores, total, window, prompt)
    first = min(2 * room.base - room.base / beta, room.most)
    steps = torch.linspace(0, 1, room.layers, dtype=torch.float64)
    layers = first - steps * 2 * (first - room.base) if room.layers > 1 else torch.full_like(steps, room.base)
    return room.kept(apportion(layers.repeat_interleave(room.kv_heads), room.spare, room.most))


def full(scores: Tensor, total: int, window: int, prompt: int | None, /) -> Tensor:
    """Keep the whole prompt, whatever was asked for: the reference. Only the scores' shape counts."""
    if prompt is None:
        raise ValueError("`prompt` must be the prompt's length in tokens for `full`, which keeps all of it; got None")
    return torch.full(scores.shape, prompt, dtype=torch.int64)


def _by_score(scores: Tensor, room: Room, ratio: float) -> Tensor:
    flat = _scored(scores).flatten()
    shares = fill(flat, room.spare, ratio * room.base, room.most)
    return room.kept(apportion(shares, room.spare, room.most, flat))


def _published(scores: Tensor, total: int, window: int, prompt: int | None, ratio: float) -> Tensor:
    """Allocate as SparseMM's code does, with any window and any prompt."""
    room = Room.of(scores, total, window, None)
    base = room.spare // room.heads
    least = int(base * ratio)
    cap = (scores / scores.sum() * ((base - least) * room.heads) + least).round().to(torch.int64)
    return room.kept(cap) if prompt is None else room.kept(cap).clamp_max(prompt)


def _scored(scores: Tensor) -> Tensor:
    if not (scores > 0).any():
        raise ValueError(
            "`scores` must be above 0 for at least one head, got zeros only; probe pages that the model can read, "
            "or choose a `rule` that asks for no scores, such as uniform"
        )
    return scores.double()


def _check_part(name: str, value: float) -> None:
    if isinstance(value, bool) or not 0 <= value <= 1:
        raise ValueError(f"`{name}` must be a number from 0 to 1, got {value!r}")


def _check_beta(value: float) -> None:
    if isinstance(value, bool) or not 1 <= value < float("inf"):
        raise ValueError(f"`beta` must be a number of at least 1, got {value!r}")
