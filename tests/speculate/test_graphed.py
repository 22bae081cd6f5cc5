"""Graphed rounds give the tokens of rounds without graphs, and know what keeps them from being graphed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import (
    LogitsProcessorList,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TypicalLogitsWarper,
)

from headscope.fused import fuse
from headscope.runtime import stock
from headscope.speculate import SparseToDense, decoder
from headscope.speculate.drafts import Lookup
from headscope.speculate.graphed import Captured, GraphedRounds, why_not
from headscope.speculate.processors import Processors
from tests.attach.models import MODELS, tokens

NEW = {"max_new_tokens": 40, "do_sample": False}
GPU = torch.device("cuda")


class Rerun(GraphedRounds):
    """Runs anew what a graph would replay, where there is no GPU; like a replay it leaves the host's numbers alone."""

    made = 0

    def _capture(self, gamma: int) -> Captured:
        Rerun.made += 1
        proposals: list[Any] = []
        told = torch.zeros(self.state.rows, 3 + gamma, dtype=torch.long)
        rooms: list[int] = []

        def draft() -> None:
            rooms[:] = [segments.room for segments in self.state.layers()]
            proposals[:] = [self.propose(gamma)]

        def verify() -> None:
            told.copy_(self._verify(proposals[0], gamma))
            for segments, room in zip(self.state.layers(), rooms, strict=True):
                segments.room = room

        places = self._places()
        return Captured(SimpleNamespace(replay=draft), SimpleNamespace(replay=verify), told, places)  # type: ignore[arg-type]


@pytest.fixture
def rerun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "why_not", lambda *given: None)
    monkeypatch.setattr(decoder, "GraphedRounds", Rerun)
    Rerun.made = 0


@pytest.mark.parametrize("name", ["qwen3", "llama", "qwen2_vl", "llava_next"])
@pytest.mark.parametrize("gamma", [1, 4])
def test_replayed_rounds_give_plain_greedy_tokens(name: str, gamma: int, rerun: None) -> None:
    model, inputs = MODELS[name]()
    expected = model.generate(**inputs, **NEW)
    draft = SparseToDense("observation_window", per_head=20, window=8, gamma=gamma, forward=fuse)
    assert torch.equal(model.generate(**inputs, **NEW, custom_generate=draft), expected)
    assert draft.report.graphed and Rerun.made <= gamma + 1  # the last round may be shorter, and buffers may move


def test_rows_go_on_by_themselves(rerun: None) -> None:
    model, _ = MODELS["llama"]()
    ids = tokens(40, rows=3)
    mask = torch.ones_like(ids)
    mask[1, :17] = 0
    inputs = {"input_ids": ids * mask, "attention_mask": mask}
    expected = model.generate(**inputs, **NEW)
    for draft in ("observation_window", "early_exit"):
        settings = {"per_head": 20, "window": 8} if draft == "observation_window" else {"layers": 2}
        graphed = SparseToDense(draft, gamma=3, forward=fuse, **settings)
        assert torch.equal(model.generate(**inputs, **NEW, custom_generate=graphed), expected)


def test_buffers_that_move_are_captured_anew(rerun: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from headscope.speculate import prefill

    monkeypatch.setattr(prefill, "ROOM", 4)
    model, inputs = MODELS["llama"]()
    expected = model.generate(**inputs, **NEW)
    draft = SparseToDense("observation_window", per_head=20, window=8, gamma=5, forward=fuse)
    assert torch.equal(model.generate(**inputs, **NEW, custom_generate=draft), expected)


def test_what_prevents_a_graph_is_said() -> None:
    model, _ = MODELS["llama"]()
    fused, kept, none = fuse(model), object(), Processors(LogitsProcessorList())
    assert fused is not None
    assert why_not(fused, kept, none, GPU) is None  # type: ignore[arg-type]
    allowed = Processors(LogitsProcessorList([TemperatureLogitsWarper(0.7), TopKLogitsWarper(5)]))
    assert why_not(fused, kept, allowed, GPU) is None  # type: ignore[arg-type]
    assert "is on cpu" in str(why_not(fused, kept, none, torch.device("cpu")))  # type: ignore[arg-type]
    assert "own modules" in str(why_not(stock(model), kept, none, GPU))  # type: ignore[arg-type]
    assert "no model" in str(why_not(fused, Lookup(lambda *given: given[0]), none, GPU))
    for processor in (RepetitionPenaltyLogitsProcessor(1.2), TypicalLogitsWarper(0.9)):
        other = Processors(LogitsProcessorList([processor]))
        assert type(processor).__name__ in str(why_not(fused, kept, other, GPU))  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_gammas_that_take_turns_are_captured_once_each(mode: Any, rerun: None) -> None:
    class Turns(SparseToDense):
        def play(self, rounds: Any, gamma: int, observer: Any = None) -> Any:
            return super().play(rounds, min(gamma, 1 + self.report.rounds % 3), observer)

    model, inputs = MODELS["llama"]()
    expected = model.generate(**inputs, **NEW)
    draft = Turns("observation_window", per_head=20, window=8, gamma=3, forward=fuse)
    with mode():
        assert torch.equal(model.generate(**inputs, **NEW, custom_generate=draft), expected)
    assert draft.report.rounds > 6 and Rerun.made == len(set(draft.report.gammas))
