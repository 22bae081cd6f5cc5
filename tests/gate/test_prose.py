"""Prose: windows of exact lengths that share no token, from a text that ships or one that is given."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.gate.prose import read_prose, windows
from tests.gate.tiny import tokenizer


@given(st.integers(60, 2000), st.integers(4, 40), st.integers(1, 20), st.integers(1, 12), st.integers(0, 2))
@settings(max_examples=60, deadline=None)
def test_windows_share_no_token_and_have_their_lengths(
    tokens: int, context: int, scored: int, count: int, start: int
) -> None:
    cut = windows(range(tokens), context=context, scored=scored, count=count, start=[-1] * start)
    assert len(cut) == min(count, tokens // (context - start + scored))
    seen: list[int] = []
    for window in cut:
        prompt = window.inputs()["input_ids"][0].tolist()
        assert len(prompt) == context and prompt[:start] == [-1] * start and len(window.continuation) == scored
        own = [*prompt[start:], *window.continuation]
        assert own == list(range(own[0], own[0] + len(own)))
        seen += own
    assert len(seen) == len(set(seen)) and seen[0] == 0
    assert len(cut) == 1 or seen[-1] == tokens - 1


def test_a_text_too_short_for_one_window_is_refused() -> None:
    with pytest.raises(ValueError, match="`text` must have 30 tokens for one window, it has 29; give a longer one"):
        windows(range(29), context=20, scored=10)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"context": 1}, "`context` must be at least 2, got 1"),
        ({"context": 4, "start": [0, 0, 0]}, "`context` must be at least 5, got 4"),
        ({"scored": 0}, "`scored` must be at least 1, got 0"),
        ({"count": 0}, "`windows` must be at least 1, got 0"),
    ],
)
def test_what_is_too_small_is_refused(given: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        windows(range(100), **{"context": 10, **given})  # type: ignore[arg-type]


def test_the_text_that_ships_is_the_one_its_readme_describes() -> None:
    prose = read_prose()
    assert prose.name == "persuasion.txt" and prose.text.isascii()
    paragraphs = prose.text.strip().split("\n\n")
    assert (len(paragraphs), len(prose.text)) == (1030, 464_306)
    assert paragraphs[0] == "Chapter 1" and sum(part.startswith("Chapter ") for part in paragraphs) == 24
    assert not any("\n" in part or "  " in part or "utenberg" in part for part in paragraphs)


def test_a_text_is_known_by_its_content_not_by_its_folder(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("One. Two.", encoding="utf-8")
    prose = read_prose(tmp_path / "a.txt")
    assert prose.name == "a.txt" and len(prose.sha256) == 64
    assert tokenizer().decode(prose.ids(tokenizer())) == "One. Two."


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="`text` must be a UTF-8 text file, got .*a.txt"):
        read_prose(tmp_path / "a.txt")
    (tmp_path / "a.txt").write_bytes(b" \n")
    with pytest.raises(ValueError, match="`text` must have words in it"):
        read_prose(tmp_path / "a.txt")
