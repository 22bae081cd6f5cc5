"""The report counts what was proposed, what stood, and where the time went."""

from __future__ import annotations

import json
import time

import pytest
import torch

from headscope.speculate.report import Clock, Report
from tests.attach.models import MODELS
from tests.speculate.prompts import speculate


def test_tokens_after_the_first_rejection_count_as_proposed() -> None:
    report = Report()
    for accepted in (3, 0, 1):
        report.count(3, accepted)
    assert (report.proposed, report.accepted, report.acceptance) == (9, 4, pytest.approx(4 / 9))
    assert report.by_place == [pytest.approx(2 / 3), 0.5, 1.0]
    assert report.lengths == [1, 1, 0, 1]
    assert report.tokens_per_round == pytest.approx(7 / 3) == pytest.approx(report.acceptance * 3 + 1)


def test_rounds_without_proposals_have_no_acceptance() -> None:
    report = Report()
    assert report.acceptance is None and report.tokens_per_round is None and report.by_place == []
    report.count(0, 0)
    assert report.acceptance is None and report.tokens_per_round == 1.0


def test_a_clock_forgets_what_was_read() -> None:
    clock = Clock(torch.device("cpu"))
    for _ in range(2):
        with clock.part("a"):
            time.sleep(0.01)
    with clock.part("b"):
        pass
    found = clock.read()
    assert found["a"] >= 0.02 > found["b"] and clock.read() == {}


def test_a_call_is_told_whole() -> None:
    model, inputs = MODELS["llama"]()
    decoder = speculate(model, "head_budget", 5)
    start = time.perf_counter()
    model.generate(**inputs, max_new_tokens=20, custom_generate=decoder)
    spent, report = time.perf_counter() - start, decoder.report
    assert report.draft == "head_budget" and report.emitted == 20 and not report.graphed and "cpu" in report.path
    assert report.rounds == report.row_rounds == len(report.gammas) and max(report.gammas) == 5
    assert report.emitted == 1 + report.row_rounds + report.accepted
    assert min(report.prompt_s, report.draft_s, report.verify_s) > 0
    assert report.prompt_s + report.draft_s + report.verify_s + report.rest_s <= spent
    assert 0 < report.kept_bytes < report.whole_bytes
    written = json.loads(json.dumps(report.to_json()))
    assert written["acceptance"] == report.acceptance and written["lengths"] == report.lengths
    model.generate(**inputs, max_new_tokens=4, custom_generate=decoder)
    assert decoder.report.emitted == 4
