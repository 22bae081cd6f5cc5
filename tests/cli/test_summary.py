"""Summaries say exactly what was found."""

from __future__ import annotations

import torch

from headscope.cli import summary
from headscope.evaluate.ablation import Condition, Outcome
from headscope.evaluate.words import WordsRight
from headscope.scores import FailedPage, HeadScores, PageRecord


def record(name: str, hit: list[list[float]]) -> PageRecord:
    values = torch.tensor(hit, dtype=torch.float64)
    nothing = torch.zeros(2, 2, dtype=torch.int64)
    return PageRecord(name, name * 8, 5, 1, 10, 4, values, values, nothing, nothing + 1)


def scores() -> HeadScores:
    records = [record("a", [[0, 2], [1, 0]]), record("b", [[0, 4], [1, 0]])]
    return HeadScores.from_records(
        records,
        [FailedPage("c.png", "cut off")],
        model={"id": "tiny", "layers": 2, "heads": 2, "kv_heads": 1},
        probe={"statistic": "hit"},
        software={},
    )


def test_a_probe_lists_its_best_heads_and_what_it_saw() -> None:
    assert summary.of_scores(scores(), rows=2).splitlines() == [
        "rank  layer  head  score   95 % interval",
        "   1      0     1  3.000  2.000 .. 4.000",
        "   2      1     0  1.000  1.000 .. 1.000",
        "",
        "model tiny: 2 layers x 2 heads, 1 KV heads",
        "pages 2, failed 1; words 10, 2 of them cropped away",
        "answer tokens 20, credited 8 (40.0 %)",
        "failed: c.png: cut off",
        "rank correlation between halves of the pages: 1.000",
        "share of the score in the top 5 % of heads: 75.0 %; in the top 10 %: 75.0 %",
        "arg maxes on sinks: 0.0 % on the first key, 25.0 % on a picture's first cell",
    ]


def test_imported_scores_say_only_what_they_know() -> None:
    lines = summary.of_scores(HeadScores.from_values([[1.0, 2.0]], kv_heads=1)).splitlines()
    assert lines[1:] == [
        "   1      0     1  2.000        unknown",
        "   2      0     0  1.000        unknown",
        "",
        "model unknown: 1 layers x 2 heads, 1 KV heads",
    ]


def test_numbers_that_are_not_known() -> None:
    assert summary.number(None) == summary.share(None) == summary.interval(None) == summary.ratio(1, 0) == "unknown"
    assert summary.number(0.00012346) == "0.0001235"


def test_an_ablation_takes_the_draws_of_a_row_together() -> None:
    def read(kind: str, right: int, draw: int = 0) -> Outcome:
        heads = () if kind == "full" else ((0, 0), (0, 1))
        return Outcome(Condition(kind, heads, draw), (WordsRight(right, 10), WordsRight(right, 10)))

    outcomes = [read("full", 10), read("best", 0), read("random", 10, 0), read("random", 8, 1)]
    assert summary.of_ablation(outcomes).splitlines() == [
        "heads silenced   which  draws  words right       95 % interval  lowest draw  of full",
        "             0    full      1      100.0 %  100.0 % .. 100.0 %               100.0 %",
        "             2    best      1        0.0 %      0.0 % .. 0.0 %                 0.0 %",
        "             2  random      2       90.0 %    90.0 % .. 90.0 %       80.0 %   90.0 %",
    ]
    assert summary.of_outcome(outcomes[3]) == "random, draw 2, 2 heads silenced, 80.0 % of words right"
