"""The ablation silences what it says, and the bundled model's best heads are what it reads with."""

import dataclasses
import random
from typing import Any

import numpy as np
import pytest

from headscope.evaluate.ablation import Condition, Outcome, ablate, default_sizes, layer_matched, plan
from headscope.evaluate.words import WordsRight
from headscope.page.source import bundled
from headscope.scores import HeadScores, find_shipped


def scores(layers: int = 4, heads: int = 5) -> HeadScores:
    values = np.random.default_rng(0).random((layers, heads))
    return HeadScores.from_values(values, kv_heads=1)


def test_the_plan_is_full_then_best_random_and_layer_matched_for_each_size() -> None:
    conditions = plan(scores(), [4, 2], draws=3, seed=0)
    kinds = [(condition.kind, len(condition.heads), condition.draw) for condition in conditions]
    draws = [(kind, draw) for kind in ("random", "layer-matched") for draw in range(3)]
    assert kinds == [("full", 0, 0)] + [
        entry for size in (4, 2) for entry in [("best", size, 0), *((kind, size, draw) for kind, draw in draws)]
    ]


def test_draws_never_hold_one_of_the_best_and_repeat_with_the_seed() -> None:
    conditions = plan(scores(), [4], draws=5, seed=1)
    best = set(next(condition.heads for condition in conditions if condition.kind == "best"))
    assert best == {(layer, head) for layer, head, _ in scores().top(4)}
    drawn = [condition.heads for condition in conditions if condition.kind in ("random", "layer-matched")]
    assert all(not best & set(heads) and len(set(heads)) == 4 for heads in drawn)
    assert conditions == plan(scores(), [4], draws=5, seed=1) != plan(scores(), [4], draws=5, seed=2)


def test_random_draws_share_no_head_until_all_others_were_drawn() -> None:
    conditions = plan(scores(), [4], draws=6, seed=3)
    drawn = [set(condition.heads) for condition in conditions if condition.kind == "random"]
    assert len(set.union(*drawn[:4])) == 16 and set.union(*drawn[4:]) <= set.union(*drawn[:4])
    assert len(drawn[4] | drawn[5]) == 8


def test_a_layer_matched_draw_takes_the_same_layers_and_the_nearest_where_one_is_used_up() -> None:
    others = [(0, 0), (0, 1), (1, 0), (2, 0), (2, 1), (2, 2)]
    drawn = layer_matched([(0, 9), (2, 8), (2, 9)], others, random.Random(0))
    assert sorted(layer for layer, _ in drawn) == [0, 2, 2]
    crowded = layer_matched([(1, 7), (1, 8)], [(1, 0), (3, 0), (2, 0)], random.Random(0))
    assert crowded == ((1, 0), (2, 0))


@pytest.mark.parametrize("size", [-1, 0, 11, 21])
def test_silencing_no_head_or_more_than_half_of_all_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"`sizes` must silence at least one head .* got {size} of 20"):
        plan(scores(), [size], draws=1, seed=0)


def test_less_than_no_draw_is_refused() -> None:
    with pytest.raises(ValueError, match="`draws` must be at least 0, got -1"):
        plan(scores(), [1], draws=-1, seed=0)


def test_default_sizes_are_a_tenth_and_a_twentieth() -> None:
    assert default_sizes(scores(12, 12)) == [14, 7] and default_sizes(scores(1, 2)) == [1, 1]


def test_accuracy_counts_words_and_its_interval_covers_it() -> None:
    outcome = Outcome(Condition("full"), (WordsRight(1, 2), WordsRight(8, 8), WordsRight(0, 10)))
    low, high = outcome.interval()
    assert outcome.accuracy == 9 / 20 and 0 <= low < 9 / 20 < high <= 1


def test_pages_without_words_leave_the_interval_as_it_is() -> None:
    """A draw of such pages alone would have an accuracy of 0 / 0."""
    pages = (WordsRight(1, 2), WordsRight(8, 8))
    blank = Outcome(Condition("full"), (*pages, *[WordsRight(0, 0)] * 8))
    assert blank.interval() == Outcome(Condition("full"), pages).interval()


def test_pages_without_a_single_word_are_refused(reader: tuple[Any, Any]) -> None:
    pages = [dataclasses.replace(page, text=" ") for page in bundled("evaluation", limit=2)]
    with pytest.raises(ValueError, match="`pages` must have words to be evaluated, the 2 given have none"):
        list(ablate(*reader, pages, [Condition("full")]))


def test_pages_without_text_are_refused(reader: tuple[Any, Any]) -> None:
    page = dataclasses.replace(bundled("evaluation")[0], words=None, text=None)
    with pytest.raises(ValueError, match="`pages` must carry their text"):
        list(ablate(*reader, [page], [Condition("full")]))


def test_the_bundled_model_reads_with_its_best_heads(reader: tuple[Any, Any]) -> None:
    pages = bundled("evaluation", limit=10)
    found = HeadScores.load(find_shipped("reader-22m"))
    conditions = [condition for condition in plan(found, [14], draws=1, seed=0) if condition.kind != "layer-matched"]
    accuracy = {
        outcome.condition.kind: outcome.accuracy for outcome in ablate(*reader, pages, conditions, max_new_tokens=100)
    }
    assert accuracy["full"] > 0.85 and accuracy["best"] < 0.1
    assert accuracy["random"] > 0.7 * accuracy["full"]
