"""Each kind of logits processor is shown what it needs: a block at once, each row's ids, or the batch step by step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import (
    LogitsProcessorList,
    NoRepeatNGramLogitsProcessor,
    PrefixConstrainedLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
)

from headscope.speculate.processors import Processors
from tests.attach.models import CACHE

CHANCE = torch.Generator().manual_seed(0)
LOGITS = torch.randn(3, 4, 11, generator=CHANCE)
IDS = torch.randint(0, 11, (3, 20), generator=CHANCE)
IGNORED = torch.tensor([3, 0, 5]) if CACHE == "cache" else 4  # a number for each row, since transformers knows that


class Doubled(TemperatureLogitsWarper):
    """A processor of one's own with the name of none that is known."""


Doubled.__name__ = "TemperatureLogitsWarper"


@pytest.mark.parametrize(
    ("given", "independent", "in_step"),
    [
        ([], True, False),
        ([TemperatureLogitsWarper(0.5), TopKLogitsWarper(3)], True, False),
        ([TemperatureLogitsWarper(0.5), NoRepeatNGramLogitsProcessor(2)], False, False),
        ([PrefixConstrainedLogitsProcessor(lambda row, ids: [1], 1)], False, True),
        ([lambda ids, scores: scores], False, True),
        ([Doubled(0.5)], False, True),
    ],
)
def test_processors_are_told_apart(given: list[Any], independent: bool, in_step: bool) -> None:
    found = Processors(LogitsProcessorList(given))
    assert (found.independent, found.in_step) == (independent, in_step)


@pytest.mark.parametrize(
    "given",
    [
        [],
        [TemperatureLogitsWarper(0.5), TopKLogitsWarper(3)],
        [RepetitionPenaltyLogitsProcessor(1.5), NoRepeatNGramLogitsProcessor(2), TopKLogitsWarper(5)],
        [RepetitionPenaltyLogitsProcessor(1.5, prompt_ignore_length=IGNORED)],
    ],
)
def test_a_block_is_processed_as_its_rows_would_be_step_by_step(given: list[Any]) -> None:
    lengths, rows = [9, 12, 9], [0, 1, 2]
    found = Processors(LogitsProcessorList(given)).block(LOGITS.bfloat16(), IDS, lengths, rows)
    assert found.dtype == torch.float32
    for row, length in enumerate(lengths):
        for at in range(4):
            seen = IDS[:, : length + at]
            expected = LogitsProcessorList(given)(seen, LOGITS[:, at].bfloat16().float())
            assert torch.equal(found[row, at], expected[row])


def test_the_logits_are_left_as_they_are() -> None:
    before = LOGITS.clone()
    Processors(LogitsProcessorList([RepetitionPenaltyLogitsProcessor(2.0)])).block(LOGITS, IDS, [5, 5, 6], [0, 2])
    assert torch.equal(LOGITS, before)
