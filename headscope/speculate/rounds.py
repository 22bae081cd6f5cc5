"""Rounds: draft some tokens, verify them in one dense pass, keep those that stand and one more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from headscope.cache.segments import Segments
from headscope.runtime import Forward, StockForward
from headscope.speculate import acceptance
from headscope.speculate.acceptance import Accepted
from headscope.speculate.drafts import Draft, EarlyExit, Lookup
from headscope.speculate.processors import Processors
from headscope.speculate.report import Clock, Report
from headscope.speculate.state import State, make_room, rewind
from headscope.speculate.stops import Stops


@dataclass(frozen=True, eq=False)
class Proposal:
    """Draft tokens, int64 [row, gamma], -1 for none, and what they were drawn from: [row, gamma, token], or None."""

    tokens: Tensor
    chances: Tensor | None = None


@dataclass(frozen=True)
class Played:
    """A round. gamma: draft tokens of each row. offered, accepted: of each row that went on. Seconds."""

    gamma: int
    offered: list[int]
    accepted: list[int]
    draft_s: float
    verify_s: float


@dataclass(eq=False)
class Rounds:
    """The loop.

    lengths, frozen: the state's, on the host, as of the last round. queries: of each layer in the last observed round,
    [row, head, new, dim].
    """

    state: State
    draft: Draft
    forward: Forward
    processors: Processors
    stops: Stops
    sample: bool
    report: Report
    clock: Clock
    lengths: list[int] = field(default_factory=list)
    frozen: list[bool] = field(default_factory=list)
    queries: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lengths = self.state.lengths.tolist()
        self.frozen = [False] * self.state.rows

    @property
    def going(self) -> list[int]:
        """Rows that still take tokens."""
        return [row for row, frozen in enumerate(self.frozen) if not frozen]

    @property
    def left(self) -> int:
        """Tokens that the shortest row may still take."""
        return self.stops.longest - min((self.lengths[row] for row in self.going), default=self.stops.longest)

    def begin(self, logits: Tensor) -> None:
        """Take the token that follows the prompt: logits [row, token]."""
        self._note(self.settle(Proposal(self.state.ids[:, :0]), logits[:, None]).tolist())

    def play(self, gamma: int, observer: StockForward | None = None) -> Played:
        """Play a round of fewer draft tokens than are `left`; `observer` verifies, where queries are asked for."""
        self.report.rounds += 1
        self.report.gammas.append(gamma)
        make_room(self.state.layers(), gamma + 1)
        told = self.run(gamma, observer)
        going, before = self.going, list(self.lengths)
        self._note(told)
        counts = [self._count(told[row], self.lengths[row] - before[row]) for row in going]
        spent = self.clock.read()
        self.report.draft_s += spent["draft"]
        self.report.verify_s += spent["verify"]
        offered, accepted = [each for each, _ in counts], [each for _, each in counts]
        return Played(gamma, offered, accepted, spent["draft"], spent["verify"])

    def run(self, gamma: int, observer: StockForward | None = None) -> list[list[int]]:
        """Run a round on the device; give what it tells the host (`settle`)."""
        with self.clock.part("draft"):
            proposal = self.propose(gamma)
        with self.clock.part("verify"):
            logits = self.verify(proposal, observer)
            self.state.catch_up(gamma + 1)
        told = self.settle(proposal, logits, fed=gamma + 1).tolist()
        rewind(self.state.layers(), 0, room=gamma + 1 - max(count for count, *_ in told))
        return told

    def propose(self, gamma: int) -> Proposal:
        """Draft `gamma` tokens of every row; the caches are as before."""
        state = self.state
        if isinstance(self.draft, Lookup):
            return Proposal(self.draft.find(state.ids, state.lengths, gamma))
        layers, token = self._draft_layers(), state.last
        tokens, chances = [state.ids[:, :0]], []
        for step in range(gamma):
            scores = self._draft_scores(self.forward(token, state.positions(step, 1), layers), step)
            if self.sample:
                chances.append(scores.softmax(-1))
            token = acceptance.draw(chances[-1]) if self.sample else scores.argmax(-1)
            tokens.append(token)
            state.put(token, step)
        rewind(layers, gamma, room=gamma)
        return Proposal(torch.cat(tokens, dim=1), torch.cat(chances, dim=1) if chances else None)

    def verify(self, proposal: Proposal, observer: StockForward | None = None) -> Tensor:
        """Run the dense model over the last token and the proposals: logits [row, gamma + 1, token]."""
        fed = torch.cat([self.state.last, proposal.tokens.clamp_min(0)], dim=1)
        given = fed, self.state.positions(0, fed.shape[1]), self.state.whole
        if observer is None:
            return self.forward(*given)
        logits, self.queries = observer.observe(*given)
        return logits

    def _draft_layers(self) -> Sequence[Segments]:
        if isinstance(self.draft, EarlyExit):
            return self.state.whole[: self.draft.layers]
        assert self.state.kept is not None
        return self.state.kept

    def _draft_scores(self, logits: Tensor, step: int) -> Tensor:
        """Process a draft step's logits [row, 1, token]; processors that may remember see only tokens that stand."""
        if self.processors.in_step:
            return logits.float()
        return self.processors.block(logits, self.state.ids, [length + step for length in self.lengths], self.going)

    def settle(self, proposal: Proposal, logits: Tensor, fed: int = 0) -> Tensor:
        """Accept, cut, and take back what does not stand; reading what it gives is a round's one wait for the device.

        fed: tokens that the caches took for it. Gives for each row how many tokens it takes, how many proposals stood,
        whether it is frozen, and the proposals.
        """
        state, new = self.state, logits.shape[1]
        found = self._accept_in_step(proposal, logits) if self.processors.in_step else self._accept(proposal, logits)
        counts, frozen = self.stops.cut(found.tokens, found.accepted + 1, state)
        state.put(found.tokens, 0, torch.arange(new, device=counts.device) < counts[:, None], self.stops.pad)
        if fed:
            rewind(state.layers(), fed - counts)
        state.lengths += counts
        state.frozen.copy_(frozen)
        return torch.cat([torch.stack([counts, found.accepted, frozen.long()], dim=1), proposal.tokens], dim=1)

    def _accept(self, proposal: Proposal, logits: Tensor) -> Accepted:
        self.state.put(proposal.tokens.clamp_min(0))
        scores = self.processors.block(logits, self.state.ids, self.lengths, self.going)
        if not self.sample:
            return acceptance.greedy(proposal.tokens, scores)
        return acceptance.sampled(proposal.tokens, _chances(proposal, scores), scores.softmax(-1))

    def _accept_in_step(self, proposal: Proposal, logits: Tensor) -> Accepted:
        """Settle position by position, until a row's proposal falls or a row ends."""
        state, going = self.state, self.going
        tokens = torch.zeros(logits.shape[:2], dtype=torch.long, device=logits.device)
        chances = _chances(proposal, logits) if self.sample else None
        for at in range(logits.shape[1]):
            scores = self.processors.together(logits[:, at], state.ids, self.lengths[going[0]] + at)[:, None]
            one = proposal.tokens[:, at : at + 1]
            both = scores.expand(-1, 1 + one.shape[1], -1)
            if chances is None:
                found = acceptance.greedy(one, both)
            else:
                found = acceptance.sampled(one, chances[:, at : at + 1], both.softmax(-1))
            tokens[:, at] = found.tokens[:, 0]
            state.put(tokens[:, at : at + 1], at, ~state.frozen[:, None], self.stops.pad)
            if not one.numel() or not bool((found.accepted > 0)[going].all()) or self.stops.ended(tokens[going, at]):
                break
        return Accepted(tokens, torch.full_like(state.lengths, at))

    def _note(self, told: list[list[int]]) -> None:
        """Follow on the host what the device has done, and call the stop rules."""
        for row, (count, _, frozen, *_) in enumerate(told):
            self.lengths[row] += count
            self.frozen[row] = bool(frozen)
        self.stops.follow(self.state, self.lengths, self.frozen)

    def _count(self, told: list[int], emitted: int) -> tuple[int, int]:
        """Count one row's block in the report; give how many tokens it proposed, and how many of them it emitted."""
        _, stood, _, *proposed = told
        offered = sum(token >= 0 for token in proposed)
        if emitted <= stood:  # the answer ends within the block: nobody asked for what would have followed
            offered = stood = max(0, emitted)
        self.report.count(offered, stood)
        return offered, stood


def _chances(proposal: Proposal, scores: Tensor) -> Tensor:
    """Give what proposals were drawn from; without a draw they had chance 1."""
    if proposal.chances is not None:
        return proposal.chances
    return acceptance.one_hot(proposal.tokens, scores.shape[-1])
