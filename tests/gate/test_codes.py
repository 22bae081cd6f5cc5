"""Codes: eight at each of five depths, at exact places, one asked for and the others distractors."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from headscope.gate.codes import multikeys, passkeys, says
from headscope.gate.layout import encode, frame
from headscope.gate.placement import DEPTHS, Placement
from tests.gate.tiny import TEXT, tokenizer

CONTEXT = 400


@pytest.fixture(scope="module")
def own() -> Any:
    return tokenizer()


@pytest.fixture(scope="module")
def one(own: Any) -> list[Placement]:
    return list(passkeys(own, frame(own), context=CONTEXT))


@pytest.fixture(scope="module")
def four(own: Any) -> list[Placement]:
    return list(multikeys(own, frame(own), encode(own, TEXT * 4), context=CONTEXT))


def text_of(own: Any, placement: Placement) -> str:
    return own.decode(placement.inputs()["input_ids"][0])


@pytest.mark.parametrize("kind", ["one", "four"])
def test_there_are_eight_of_each_of_five_depths_in_prompts_of_the_exact_length(kind: str, request: Any) -> None:
    placements = request.getfixturevalue(kind)
    assert Counter(placement.depth for placement in placements) == dict.fromkeys(DEPTHS, 8)
    assert len({placement.key for placement in placements}) == 40
    assert len({placement.expected for placement in placements}) == 40
    assert all(placement.inputs()["input_ids"].shape == (1, CONTEXT) for placement in placements)


@pytest.mark.parametrize("kind", ["one", "four"])
def test_what_is_asked_for_begins_at_the_position_that_is_told(kind: str, own: Any, request: Any) -> None:
    for placement in request.getfixturevalue(kind):
        ids = placement.inputs()["input_ids"][0]
        behind = own.decode(ids[placement.position :])
        assert behind.startswith(" The access code")
        assert says(behind, placement.expected)
        assert not own.decode(ids[: placement.position]).endswith(" ")


def test_one_code_lies_at_the_depth_of_its_filler(own: Any, one: list[Placement]) -> None:
    positions = {placement.depth: placement.position for placement in one}
    head, span = positions[0.05], positions[0.95] - positions[0.05]
    assert [positions[depth] - head for depth in DEPTHS] == [
        pytest.approx(span * (depth - 0.05) / 0.9, abs=1) for depth in DEPTHS
    ]
    assert all(text_of(own, placement).count(placement.expected) == 1 for placement in one)


def test_four_codes_are_hidden_and_one_is_asked_for_by_its_door(own: Any, four: list[Placement]) -> None:
    for placement in four:
        text = text_of(own, placement)
        codes = [placement.expected, *placement.distractors]
        assert len(set(codes)) == 4 and all(text.count(code) == 1 for code in codes)
        door = text.partition("What is the access code of the ")[2].split()[0]
        assert f"The access code of the {door} door is {placement.expected}." in text


def test_every_depth_but_the_asked_one_holds_a_distractor_in_turn(own: Any, four: list[Placement]) -> None:
    """Three of the other four depths, another one left out each time."""
    of_one_depth = [placement for placement in four if placement.depth == 0.5][:4]
    places = []
    for placement in of_one_depth:
        text = text_of(own, placement)
        places.append(tuple(round(text.index(code) / len(text), 1) for code in placement.distractors))
    assert len(set(places)) == 4


def test_the_same_seed_hides_the_same_codes(own: Any) -> None:
    def expected(seed: int) -> list[str]:
        made = passkeys(own, frame(own), context=CONTEXT, depths=[0.5], each=3, seed=seed)
        return [placement.expected for placement in made]

    assert expected(1) == expected(1) != expected(2)


def test_an_answer_is_right_or_a_distractor_or_neither(four: list[Placement]) -> None:
    asked, other = four[0].expected, four[0].distractors[1]
    judged = [
        four[0].judge(text)
        for text in (f"It is {asked}.", f"The code is {other}.", f"{other}, no, {asked}", f"1{asked}", "000000", "none")
    ]
    assert [answer.right for answer in judged] == [True, False, False, False, False, False]
    assert [answer.distractor for answer in judged] == [False, True, True, False, False, False]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"depths": []}, "`depths` must be different numbers from 0 to 1, at least one"),
        ({"depths": [0.5, 0.5]}, "`depths` must be different numbers"),
        ({"depths": [1.5]}, "`depths` must be different numbers from 0 to 1"),
        ({"each": 0}, "`each` must be at least 1 placement at a depth, got 0"),
        ({"context": 20}, "`context` must hold the question"),
    ],
)
def test_what_cannot_be_laid_out_is_refused(own: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        list(passkeys(own, frame(own), **{"context": CONTEXT, **settings}))
