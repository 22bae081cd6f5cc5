"""Acceptance: which draft tokens stand, and the token that follows them; nothing but maths on tensors.

In all functions a proposed token of -1 is none: it never stands, and the position's token comes from the dense model.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Accepted(NamedTuple):
    """What a round gives. tokens: int64 [row, gamma + 1], of which the first `accepted` + 1 count; accepted: [row]."""

    tokens: Tensor
    accepted: Tensor


class Outcomes(NamedTuple):
    """What may come of a round's proposals.

    keep: [row, gamma], the chance that a proposed token stands, given that all before it do.
    follow: [row, gamma + 1, token], the distribution of the token after exactly so many that stand.
    """

    keep: Tensor
    follow: Tensor


def leading(stands: Tensor) -> Tensor:
    """Count the leading True of each row: bool [row, gamma] -> int64 [row]."""
    return stands.long().cumprod(-1).sum(-1)


def greedy(proposed: Tensor, scores: Tensor) -> Accepted:
    """Keep proposals while each is the arg max of the dense scores.

    proposed: int64 [row, gamma]. scores: [row, gamma + 1, token], processed as in plain decoding; position i is that of
    proposal i, and the last one that of the token behind all of them.
    """
    best = scores.argmax(-1)
    return Accepted(best, leading(best[:, :-1] == proposed))


def outcomes(proposed: Tensor, draft: Tensor, dense: Tensor) -> Outcomes:
    """Give the chances of speculative sampling: min(1, p / q), then norm(max(p - q, 0)) (Leviathan et al. 2023, 2.3).

    proposed: int64 [row, gamma]. draft: q, [row, gamma, token], what each proposal was drawn from. dense: p,
    [row, gamma + 1, token]. Both are probabilities after the logits processors. After a full house the token comes from
    p itself. Where p and q are equal nothing can be rejected, and p stands in for the empty residual.
    """
    some = proposed >= 0
    draft = draft * some[..., None]  # where nothing was proposed, nothing is taken away from p
    at = proposed.clamp_min(0)[..., None]
    p, q = dense[:, :-1].gather(-1, at)[..., 0], draft.gather(-1, at)[..., 0]
    keep = torch.where(some & (q > 0), p / q.where(q > 0, 1), 0).clamp_max(1)
    residual = (dense[:, :-1] - draft).clamp_min(0)
    total = residual.sum(-1, keepdim=True)
    residual = torch.where(total > 0, residual / total.where(total > 0, 1), dense[:, :-1])
    return Outcomes(keep, torch.cat([residual, dense[:, -1:]], dim=1))


def sampled(proposed: Tensor, draft: Tensor, dense: Tensor, generator: torch.Generator | None = None) -> Accepted:
    """Draw a round of speculative sampling; arguments as in `outcomes`."""
    chances = outcomes(proposed, draft, dense)
    drawn = torch.rand(proposed.shape, generator=generator, device=proposed.device)
    accepted = leading(drawn < chances.keep)
    index = accepted[:, None, None].expand(-1, 1, dense.shape[-1])
    last = draw(chances.follow.gather(1, index), generator)
    tokens = torch.cat([proposed, proposed.new_zeros(len(proposed), 1)], dim=1)
    return Accepted(tokens.scatter(1, accepted[:, None], last), accepted)


def draw(chances: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Draw a token from each distribution: [..., token] -> int64 [...].

    The arg max of p / E, E exponential, has distribution p; unlike `torch.multinomial` it never waits for the device.
    """
    return (chances / torch.empty_like(chances).exponential_(generator=generator)).argmax(-1)


def one_hot(proposed: Tensor, tokens: int) -> Tensor:
    """Give the distribution of a draft that does not draw: float32 [row, gamma, token]; zeros where it has none."""
    q = torch.zeros(*proposed.shape, tokens, device=proposed.device)
    return q.scatter(-1, proposed.clamp_min(0)[..., None], (proposed >= 0).float()[..., None])
