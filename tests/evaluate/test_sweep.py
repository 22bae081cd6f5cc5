"""The sweep reads at every point once, and shows what scores are worth."""

from typing import Any

import pytest

from headscope.evaluate.sweep import Setting, settings, sweep
from headscope.page.source import bundled
from headscope.scores import HeadScores, find_shipped


def test_settings_are_the_full_cache_and_every_rule_selection_and_budget() -> None:
    points = settings(["sparsemm", "random"], ["observation_window", "text_guided"], [48, 64], prompt=110, seeds=3)
    assert points[0] == Setting("full", "observation_window", 110)
    assert len(points) == 1 + 2 * 2 + 2 * 2 * 3 == len({point.key for point in points})
    assert {point.rule_settings.get("seed") for point in points if point.rule == "random"} == {0, 1, 2}
    assert all(
        point.select_settings == ({"pool": 5} if point.select == "observation_window" else {}) for point in points[1:]
    )


def test_head_scores_keep_a_model_reading_where_a_uniform_budget_does_not(reader: tuple[Any, Any]) -> None:
    points = [
        Setting("full", "observation_window", 110),
        *(Setting(rule, "observation_window", 64) for rule in ("sparsemm", "uniform")),
    ]
    scores = HeadScores.load(find_shipped("reader-22m"))
    found = {
        point.setting.rule: point
        for point in sweep(*reader, bundled("evaluation")[:10], scores, points, max_new_tokens=110)
    }
    accuracy = {rule: point.outcome.accuracy for rule, point in found.items()}
    assert accuracy["full"] > 0.85 and accuracy["sparsemm"] > 0.7 > accuracy["uniform"] + 0.3
    assert found["sparsemm"].kv_bytes == found["uniform"].kv_bytes == 64 * 12 * 4 * 2 * 32 * 4
    assert found["full"].kv_bytes == 110 * 12 * 4 * 2 * 32 * 4


@pytest.mark.parametrize("rule", ["adaptive", "pyramid", "headkv"])
@pytest.mark.parametrize("select", ["observation_window", "text_guided", "sinks_and_recent", "random"])
def test_every_rule_goes_with_every_selection(reader: tuple[Any, Any], rule: str, select: str) -> None:
    scores = HeadScores.load(find_shipped("reader-22m"))
    (point,) = sweep(*reader, bundled("evaluation")[:2], scores, [Setting(rule, select, 64)], max_new_tokens=4)
    assert point.kv_bytes == 64 * 12 * 4 * 2 * 32 * 4 and len(point.outcome.pages) == 2
