"""A suite: what a model can be asked, in the order and under the protocol that a result file names."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from headscope.gate.prose import Prose
from headscope.gate.suite import build
from headscope.page.source import bundled
from tests.gate.tiny import TEXT, tokenizer

SHORT: dict[str, Any] = {"context": 200, "scored": 16, "count": 2, "depths": [0.5], "each": 2}


def test_a_text_model_is_asked_all_that_needs_no_picture() -> None:
    suite = build(tokenizer(), prose=Prose("own.txt", TEXT * 30), **SHORT)
    assert Counter(placement.test for placement in suite.placements) == {"passkey": 2, "multikey": 2}
    assert [len(window.continuation) for window in suite.windows] == [16, 16]
    assert suite.protocol["text"] == "own.txt" and suite.protocol["context"] == 200


def test_a_vision_model_is_asked_everything_and_scores_pages(reader: Any) -> None:
    suite = build(reader[1], pages=bundled("evaluation", 3), pictures=[4, 8], **SHORT)
    tests = Counter(placement.test for placement in suite.placements)
    assert tests == {"passkey": 2, "multikey": 2, "4 pictures": 2, "8 pictures": 2, "keys": 2}
    assert [window.name for window in suite.windows] == [f"evaluation/00{at}.png" for at in range(3)]
    assert suite.protocol["pages"] == 3 and len(suite.protocol["pages_hash"]) == 64


def test_a_vision_model_scores_a_text_that_is_given(reader: Any) -> None:
    suite = build(reader[1], tests=["perplexity"], prose=Prose("own.txt", TEXT * 30), **SHORT)
    assert suite.windows[0].inputs().keys() == {"input_ids", "attention_mask"} and not suite.placements
    assert suite.protocol == {
        "tests": ["perplexity"],
        "seed": 0,
        "windows": 2,
        "scored": 16,
        "text": "own.txt",
        "text_sha256": Prose("", TEXT * 30).sha256,
        "context": 200,
    }


def test_the_protocol_changes_with_whatever_is_asked() -> None:
    def protocol(**changes: Any) -> dict[str, Any]:
        return build(tokenizer(), prose=Prose("own.txt", TEXT * 30), **{**SHORT, **changes}).protocol

    others = [{"context": 210}, {"scored": 8}, {"count": 1}, {"depths": [0.4]}, {"each": 1}, {"seed": 1}]
    others += [{"tests": ["passkey"]}, {"prose": Prose("own.txt", TEXT * 31)}]
    assert all(protocol(**other) != protocol() for other in others if "prose" not in other)
    assert build(tokenizer(), **{**SHORT, **others[-1]}).protocol != protocol()


@pytest.mark.parametrize("tests", [["pictures"], ["recall"], []])
def test_what_a_model_cannot_be_asked_is_refused(tests: list[str]) -> None:
    with pytest.raises(ValueError, match="`tests` must be some of perplexity, passkey, multikey for a text model, got"):
        build(tokenizer(), tests=tests, **SHORT)
