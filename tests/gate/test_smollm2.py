"""The real text model, where `make smollm2` has put it: a window loses what a selection of the same size keeps."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

import headscope as hs
from headscope.families.text import load_text
from headscope.gate import build, judge, measure
from headscope.resources import PACKAGE
from headscope.select import observation_window, sinks_and_recent

FOLDER = PACKAGE.parent / "data" / "smollm2"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not any(FOLDER.glob("*.gguf")), reason="`make smollm2` has not been run"),
]


@pytest.fixture(scope="module")
def loaded() -> Any:
    pytest.importorskip("gguf")
    return load_text(FOLDER, dtype="float32")


def test_a_selection_is_admitted_and_a_window_is_not(loaded: Any) -> None:
    model, tokenizer = loaded
    suite = build(tokenizer, tests=["passkey"], context=320, depths=[0.1, 0.95], each=1)
    scores = hs.HeadScores.from_values([[1.0] * 9] * 30, kv_heads=3)
    policy = partial(hs.compress, scores=scores, rule="uniform", ratio_kept=0.5, window=16)
    dense = measure(model, suite)
    assert all(answer.right for answer in dense.answers.values())
    selection = partial(policy, select=partial(observation_window, pool=7, sinks=4))
    assert judge(suite, dense, measure(model, suite, selection)).admitted
    window = judge(suite, dense, measure(model, suite, partial(policy, select=sinks_and_recent)))
    assert [placement.depth for placement in window.tests[0].lost] == [0.1]
