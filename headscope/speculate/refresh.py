"""Refresh: choose the draft's prompt tokens anew, by what the tokens that were just verified attend to."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headscope.attach.step import Policy
from headscope.cache.segments import Segments
from headscope.runtime import WindowedSegments
from headscope.select import Prompt
from headscope.speculate.handback import dense
from headscope.speculate.prefill import Filled
from headscope.speculate.rounds import Played, Rounds

FALLING = "falling"
FALL = 0.75  # of the best running share of tokens that stood: below it, the choice is made anew
FADE = 0.7  # of the running share, from one round to the next
SETTLED = 4  # rounds before a share counts


class Refresh:
    """Says when. rule: every so many rounds, or FALLING; None: never."""

    def __init__(self, rule: int | str | None) -> None:
        self.rule = rule
        self._begin()

    def _begin(self) -> None:
        self.rounds, self.share, self.best = 0, 0.0, 0.0

    @property
    def due(self) -> bool:
        """Whether the next round is to be observed, and the choice made anew after it."""
        if self.rule is None:
            return False
        if self.rule == FALLING:
            return self.rounds > SETTLED and self.share < FALL * self.best
        return self.rounds >= int(self.rule) - 1

    def note(self, played: Played, refreshed: bool) -> None:
        """Note a round."""
        if refreshed:
            self._begin()
        elif played.gamma and played.accepted:
            share = sum(played.accepted) / len(played.accepted) / played.gamma
            self.share = share if not self.rounds else FADE * self.share + (1 - FADE) * share
            self.rounds += 1
            if self.rounds >= SETTLED:
                self.best = max(self.best, self.share)


def check_refresh(rule: int | str | None) -> None:
    """Refuse rules that there are not."""
    number = isinstance(rule, int) and not isinstance(rule, bool) and rule >= 1
    if rule is not None and rule != FALLING and not number:
        raise ValueError(f'`refresh` must be a number of rounds above 0, "{FALLING}" or None, got {rule!r}')


def choose_anew(rounds: Rounds, filled: Filled, policy: Policy, modules: list[Any], counts: list[int]) -> None:
    """Replace the draft's segments of every layer. counts: tokens that each row took in the observed round.

    Each head keeps as many prompt tokens as before, and all that came after. Layers with a sliding window stay as they
    are: what they may see is little.
    """
    state = rounds.state
    assert state.kept is not None
    for index, (whole, kept, query) in enumerate(zip(state.whole, state.kept, rounds.queries, strict=True)):
        if isinstance(whole, WindowedSegments):
            continue
        key, value = dense(whole, int(whole.lengths.max()))
        scaling = getattr(modules[index], "scaling", None) or key.shape[-1] ** -0.5
        chosen = torch.zeros(key.shape[:3], dtype=torch.bool, device=key.device)
        for row, count in enumerate(counts):
            length = int(whole.lengths[row, 0])
            if count:
                visual = _visual(filled, row, length)
                own = Prompt(
                    query[row : row + 1, :, :count], key[row : row + 1, :, -length:], scaling, None, visual, index
                )
                chosen[row, :, -length:] = _select(policy, own, kept.lengths[row], length - int(filled.tokens[row]))
            else:
                chosen[row, :, -1] = True
        state.kept[index] = Segments.of(
            key, value, chosen.nonzero()[:, 2], chosen.sum(-1, dtype=torch.int32), kept.room
        )
    rounds.queries = []


def _select(policy: Policy, prompt: Prompt, lengths: Tensor, after: int) -> Tensor:
    """Choose for one row: int32 [kv], as many as before -> bool [kv, token]; the last `after` tokens are kept."""
    return policy.select(prompt, lengths[None].long(), window=after)[0]


def _visual(filled: Filled, row: int, length: int) -> Tensor | None:
    """Give which of a row's tokens are visual, padding left out, the answer's included: bool [1, length]."""
    if filled.visual is None:
        return None
    own = filled.visual[row, filled.total - int(filled.tokens[row]) :]
    return torch.nn.functional.pad(own, (0, length - len(own)))[None]
