"""Acceptance is counted on the dense model's own answers, token by token and in rounds."""

from __future__ import annotations

from typing import Any

import pytest

from headscope.evaluate import acceptance
from headscope.evaluate.acceptance import Point, Setting, measure, prompts, settings
from headscope.page.source import bundled
from headscope.scores import HeadScores, find_shipped


def test_settings_are_every_task_draft_budget_and_gamma() -> None:
    found = settings(["page"], ["head_budget", "early_exit"], [48, 64], [9, 0])
    assert [(each.draft, each.per_head, each.gamma) for each in found] == [
        ("head_budget", 48, 9),
        ("head_budget", 48, 0),
        ("head_budget", 64, 9),
        ("head_budget", 64, 0),
        ("early_exit", None, 9),
        ("early_exit", None, 0),
    ]
    assert found[0].settings == {"ratio": 0.1} and len({each.key for each in found}) == 6
    with pytest.raises(ValueError, match="`drafts` must be of head_budget.*got 'fast'"):
        settings(["page"], ["fast"], [48], [9])
    with pytest.raises(ValueError, match="`tasks` must be of page, pictures"):
        settings(["book"], ["early_exit"], [48], [9])


def test_a_point_tells_both_numbers_with_intervals_over_prompts() -> None:
    point = Point(Setting("page", "head_budget", 48, 9), ((9, 10, 18), (0, 2, 18), (9, 9, 9)))
    assert point.next_token == pytest.approx(18 / 21) and point.accepted_ratio == pytest.approx(18 / 45)
    for of, value in ((1, point.next_token), (2, point.accepted_ratio)):
        low, high = point.interval(of)
        assert low < value < high
    assert point.to_json()["counts"] == [[9, 10, 18], [0, 2, 18], [9, 9, 9]]


def test_a_draft_without_proposals_has_no_acceptance() -> None:
    point = Point(Setting("page", "prompt_lookup", None, 9), ((0, 0, 0),))
    assert point.to_json()["next_token"] == 0 and point.interval(2) == (0.0, 0.0)


@pytest.fixture(scope="module")
def found(reader: tuple[Any, Any]) -> dict[tuple[str, int], Point]:
    """Two pages, read with some drafts."""
    pages = sorted(bundled("evaluation"), key=lambda page: len(page.text or ""))[:2]
    asked, scores = prompts("page", pages), HeadScores.load(find_shipped("reader-22m"))
    points = settings(["page"], ["head_budget", "sinks_and_recent"], [64], [0, 4])
    points += settings(["page"], ["observation_window"], [110], [0, 4])
    measured = measure(*reader, asked, scores, points, batch=2, max_new_tokens=16)
    return {(point.setting.draft, point.setting.gamma): point for point in measured}


def test_a_draft_that_keeps_everything_is_always_right(found: dict[tuple[str, int], Point]) -> None:
    for gamma in (0, 4):
        assert found["observation_window", gamma].next_token == 1.0


def test_each_token_of_the_answer_is_asked_for_once(found: dict[tuple[str, int], Point]) -> None:
    every = [found[draft, 0].counts for draft in ("head_budget", "sinks_and_recent", "observation_window")]
    for counts in every:
        assert all(reached == proposed for _, reached, proposed in counts)
        assert [proposed for *_, proposed in counts] == [proposed for *_, proposed in every[0]]


def test_head_budgets_read_better_than_streaming(found: dict[tuple[str, int], Point]) -> None:
    for gamma in (0, 4):
        assert found["head_budget", gamma].next_token > 0.9 > found["sinks_and_recent", gamma].next_token
    rounds = found["sinks_and_recent", 4]
    assert rounds.accepted_ratio < rounds.next_token


def test_prompts_of_pictures_are_asked_to_be_read_whole() -> None:
    asked = prompts("pictures", bundled("evaluation")[:10], 2)
    assert [len(each.images) for each in asked] == [8, 9] and asked[0].question == "Read all pictures."
    assert acceptance.KEPT[0] == "head_budget"
