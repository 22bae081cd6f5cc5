"""One answer, with and without a compressed cache."""

from typing import Any

import pytest

from headscope.attach import compress
from headscope.evaluate.single import answer
from headscope.page.image import decode
from headscope.page.source import bundled
from headscope.scores import HeadScores, find_shipped


@pytest.fixture(scope="module")
def image() -> Any:
    return decode(min(bundled("evaluation"), key=lambda page: len(page.text or "")).source)


@pytest.fixture(scope="module")
def scores() -> HeadScores:
    return HeadScores.load(find_shipped("reader-22m"))


def test_a_full_cache_is_counted_as_it_is(reader: tuple[Any, Any], image: Any) -> None:
    found = answer(*reader, [image], "Read the text.", max_new_tokens=40)
    assert found.prompt_tokens == 110 and found.text
    assert found.kept_bytes == found.dense_bytes == (110 + found.tokens - 1) * 12 * 4 * 2 * 32 * 4
    assert found.prompt_s > 0 and found.decode_s > 0


def test_a_full_budget_gives_the_same_answer_and_a_smaller_one_less_cache(
    reader: tuple[Any, Any], image: Any, scores: HeadScores
) -> None:
    plain = answer(*reader, [image], "Read the text.", max_new_tokens=40)
    full = compress(reader[0], scores=scores, rule="full", per_head=110, window=16)
    assert answer(*reader, [image], "Read the text.", compressed=full, max_new_tokens=40).text == plain.text
    small = compress(reader[0], scores=scores, per_head=40, window=16)
    found = answer(*reader, [image], "Read the text.", compressed=small, max_new_tokens=10)
    assert found.kept_bytes < 0.7 * found.dense_bytes


def test_an_answer_of_one_token_has_no_rate(reader: tuple[Any, Any], image: Any) -> None:
    assert answer(*reader, [image], "Read the text.", max_new_tokens=1).tokens_per_s is None
