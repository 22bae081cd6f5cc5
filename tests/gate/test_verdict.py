"""The verdict: what is lost refuses, what the dense model misses does not, and the budget's edge is inside."""

from __future__ import annotations

import math
from typing import Any

import pytest

from headscope.gate.perplexity import Block
from headscope.gate.placement import Placement
from headscope.gate.prose import Window
from headscope.gate.run import Measured
from headscope.gate.suite import Suite
from headscope.gate.verdict import Verdict, judge


def suite(*tests: str, windows: int = 1) -> Suite:
    placements = [
        Placement(test, depth, trial, "yes", ("other",), dict, str.__eq__)
        for test in tests
        for depth in (0.1, 0.9)
        for trial in range(2)
    ]
    return Suite([Window(f"w{at}", dict, (1,)) for at in range(windows)], placements, lambda ids: "")


def measured(given: Suite, answers: str, loss: float = 1.0) -> Measured:
    """answers: a letter a placement: y(es), n(o), o(ther)."""
    said = {"y": "yes", "n": "no", "o": "other"}
    judged = {at.key: at.judge(said[letter]) for at, letter in zip(given.placements, answers, strict=True)}
    return Measured({window.name: (Block(loss, 1),) for window in given.windows}, judged)


def verdict(dense: str, configured: str, *, rise: float = 0.0, **settings: Any) -> Verdict:
    given = suite(*("passkey", "multikey")[: len(dense) // 4])
    return judge(given, measured(given, dense), measured(given, configured, math.log(math.e + rise)), **settings)


def test_all_answered_and_no_rise_is_admitted() -> None:
    found = verdict("yyyyyyyy", "yyyyyyyy")
    assert found.admitted and found.reasons == () and found.certain


def test_one_lost_placement_refuses_and_is_named() -> None:
    found = verdict("yyyyyyyy", "yyyyyyoy")
    assert not found.admitted
    assert [placement.key for placement in found.tests[1].lost] == ["multikey 0.9 0"]
    assert found.tests[1].distractors == (0, 1) and found.tests[1].right == (4, 3)
    assert found.reasons == ("multikey: 1 of the 4 placements that the dense model answers are lost, at depth 0.9: 1",)


def test_what_the_dense_model_misses_is_not_held_against_a_configuration() -> None:
    found = verdict("yyyoyyyn", "yyynyyyn")
    assert found.admitted and found.tests[0].distractors == (1, 0)


def test_what_a_configuration_gains_does_not_pay_for_what_it_loses() -> None:
    found = verdict("yyyn", "yyny")
    assert not found.admitted
    assert [placement.key for placement in found.tests[0].gained] == ["passkey 0.9 1"]
    assert [placement.key for placement in found.tests[0].lost] == ["passkey 0.9 0"]


def test_placements_that_the_dense_model_never_answers_show_nothing() -> None:
    found = verdict("nnoo", "nnnn")
    assert not found.admitted and found.tests[0].empty
    assert "the dense model answers none of the placements" in found.reasons[0]
    assert verdict("yyyynnnn", "yyyynnnn").admitted


def test_the_edge_of_the_budget_is_inside_it() -> None:
    rise = verdict("yyyy", "yyyy", rise=0.5).rise
    assert rise is not None
    assert verdict("yyyy", "yyyy", rise=0.5, max_rise=rise.rise).admitted
    found = verdict("yyyy", "yyyy", rise=0.5, max_rise=math.nextafter(rise.rise, 0))
    assert not found.admitted and found.reasons[0].startswith("perplexity rises by 0.500 (0.500 .. 0.500), more than")
    assert verdict("yyyy", "yyyy", rise=-0.5, max_rise=0).admitted


def test_both_reasons_are_given() -> None:
    assert len(verdict("yyyyyyyy", "nyyyynyy", rise=2.0).reasons) == 3


def test_without_perplexity_retrieval_decides() -> None:
    given = suite("passkey", windows=0)
    found = judge(given, measured(given, "yyyy"), measured(given, "yyyn"))
    assert (found.admitted, found.rise, found.certain) == (False, None, None)


def test_an_interval_across_the_budget_is_not_certain() -> None:
    given = suite(windows=4)
    dense = Measured({f"w{at}": (Block(1.0, 1),) for at in range(4)})
    configured = Measured({f"w{at}": (Block(1.0 + 0.1 * at, 1),) for at in range(4)})
    found = judge(given, dense, configured, max_rise=0.44)
    assert found.rise is not None and found.rise.low < 0.44 < found.rise.high
    assert found.certain is False
    assert judge(given, dense, configured, max_rise=3.0).certain


@pytest.mark.parametrize("max_rise", [-0.1, math.nan, math.inf])
def test_a_budget_that_is_no_rise_is_refused(max_rise: float) -> None:
    with pytest.raises(ValueError, match="`max_rise` must be a rise of perplexity, at least 0, got"):
        verdict("yyyy", "yyyy", max_rise=max_rise)
