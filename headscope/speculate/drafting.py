"""Graphed drafting: rounds of which the drafting alone runs as a CUDA graph, where verification cannot be captured."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from headscope.runtime import StockForward
from headscope.speculate.graphed import GraphedRounds
from headscope.speculate.rounds import Proposal, Rounds


@dataclass(frozen=True, eq=False)
class Drafted:
    """Drafting of so many tokens, captured. proposal: what it gives, in place. places: of the buffers it works on."""

    graph: torch.cuda.CUDAGraph
    proposal: Proposal
    places: list[int]


@dataclass(eq=False)
class GraphedDrafting(GraphedRounds):
    """Rounds whose drafting is captured at first and replayed from then on, one graph for each gamma."""

    drafted: dict[int, Drafted] = field(default_factory=dict)

    def run(self, gamma: int, observer: StockForward | None = None) -> list[list[int]]:
        """Run a round on the device; see `Rounds.run`."""
        return Rounds.run(self, gamma, observer)

    def propose(self, gamma: int) -> Proposal:
        """Draft `gamma` tokens of every row; the caches are as before."""
        if not gamma:
            return super().propose(gamma)
        drafted = self.drafted.get(gamma)
        if drafted is None or drafted.places != self._places():
            self._tie()
            drafted = self.drafted[gamma] = self._capture_draft(gamma)
        drafted.graph.replay()
        return drafted.proposal

    def _capture_draft(self, gamma: int) -> Drafted:
        """Draft to warm up, capture it, and leave the state as it was."""
        with torch.cuda.device_of(self.state.ids):
            with self._unchanged():
                super().propose(gamma)
            graph = torch.cuda.CUDAGraph()
            with self._unchanged(), torch.cuda.graph(graph, stream=torch.cuda.Stream()):
                proposal = super().propose(gamma)
        return Drafted(graph, proposal, self._places())
