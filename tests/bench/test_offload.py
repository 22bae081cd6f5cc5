"""The bench of offloading computes what it says from what it measures, and plays the real rounds."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LogitsProcessorList, MaxLengthCriteria, StoppingCriteriaList

from headscope.bench import offload, speculate
from headscope.bench.offload import ForcedDrafting, away, derived, fits, largest
from headscope.bench.step import Rig
from headscope.cache.host import Host
from headscope.cache.segments import Segments
from headscope.fused import fuse
from headscope.speculate.drafts import Kept, nothing_kept
from headscope.speculate.processors import Processors
from headscope.speculate.report import Clock, Report
from headscope.speculate.rounds import Rounds
from headscope.speculate.state import State
from headscope.speculate.stops import Stops
from tests.attach.models import text_model

CPU = torch.device("cpu")


def test_what_hides_is_what_copies_in_line_cost_more() -> None:
    row = derived(resident=10.0, offloaded=60.0, in_line=80.0, copying=50.0)
    assert row["copying_hidden"] == 0.4 and row["round_that_copies"] == 0.833
    assert row["resident_ms_per_token"] == 1.25 and row["offloaded_ms_per_token"] == 7.5


def test_the_largest_context_is_the_first_that_finds_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    tried = []

    def work(_rig: Any, context: int) -> None:
        tried.append(context)
        if context > 8192:
            raise torch.cuda.OutOfMemoryError

    assert largest(None, work) == 8192 and tried == [32768, 16384, 8192]  # type: ignore[arg-type]
    assert not fits(None, work, 16384)  # type: ignore[arg-type]


def test_rounds_with_a_trace_play_on_the_cpus_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (offload, speculate):
        monkeypatch.setattr(module, "DEVICE", CPU)
    monkeypatch.setattr(ForcedDrafting, "propose", Rounds.propose)
    model, rows, context = text_model("llama"), 2, 50
    step = fuse(model)
    assert step is not None
    rig = Rig(model, step, Rig.of(model).shape, room=40)
    places = [Host(rows * 2 * (context + 40), 16, torch.float32, CPU) for _ in range(3)]
    made, layers = away(rig, rows, context, places)
    for place in places:
        place.key.normal_(), place.value.normal_()
    state = State(
        ids=torch.ones(rows, 200, dtype=torch.int64),
        lengths=torch.full((rows,), context + 1),
        offset=torch.zeros(rows, dtype=torch.int64),
        frozen=torch.zeros(rows, dtype=torch.bool),
        whole=layers,
        kept=[
            Segments(place.key.clone(), place.value.clone(), each.starts, each.lengths.clone(), 40)
            for place, each in zip(places, layers, strict=True)
        ],
    )
    stops = Stops(StoppingCriteriaList([MaxLengthCriteria(190)]), None, context + 1, rows, 0)
    report, found = Report(), Processors(LogitsProcessorList())
    given = Kept(nothing_kept(model)), step, found, stops, False, report, Clock(CPU)
    at = torch.zeros(1, dtype=torch.int64)
    playing = ForcedDrafting(state, *given, trace=torch.full((1, rows), 2), at=at)  # type: ignore[arg-type]
    for turn in range(3):
        playing.play(4)
        assert playing.lengths == [context + 1 + 3 * (turn + 1)] * rows
    assert report.acceptance == 0.5 and made.staged_bytes == 2 * 2 * places[0].key.nbytes
