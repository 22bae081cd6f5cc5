"""What an engine read is kept on disk, and read again from there."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headscope.page import Page, Word
from headscope.page.cache import Cached, cache_folder
from headscope.page.engine import Engine, EngineFailure
from headscope.page.ocr import GivenWords

PAGE = Page("page", b"")
IMAGE = np.zeros((4, 6, 3), np.uint8)
WORDS = [Word("Café 1", ((0.1, 1 / 3), (2, 0.1), (2, 3), (0, 3)), 0.9999999999999999), Word("2", ((1, 1),) * 4, None)]


@dataclass(frozen=True)
class Counting(Engine):
    """Gives fixed words and counts how often it was asked."""

    granularity: str = "line"
    release: str = "1"
    calls: list[str] = field(default_factory=list)
    failure: Exception | None = None
    name = "counting"

    @property
    def version(self) -> str:
        return self.release

    def units(self, page: Page, image: np.ndarray) -> list[Word]:
        self.calls.append(page.name)
        if self.failure:
            raise self.failure
        return WORDS


def test_a_second_reading_comes_from_the_disk_and_is_equal(tmp_path):
    engine = Counting()
    first, second = (
        Cached(engine, tmp_path)(PAGE, IMAGE),
        Cached(engine, str(tmp_path))(Page("other name", b""), IMAGE.copy()),
    )
    assert engine.calls == ["page"]
    assert first == second
    assert all(type(number) is float for word in second for corner in word.quad for number in corner)
    assert all(isinstance(word.quad, tuple) and isinstance(word.quad[0], tuple) for word in second)


def test_no_words_are_kept_too(tmp_path, monkeypatch):
    monkeypatch.setattr(f"{__name__}.WORDS", [])
    engine = Counting()
    for _ in range(2):
        assert Cached(engine, tmp_path)(PAGE, IMAGE) == []
    assert len(engine.calls) == 1


@pytest.mark.parametrize("change", ["image", "version", "options"])
def test_another_picture_version_or_option_is_read_anew(tmp_path, change):
    Cached(Counting(), tmp_path)(PAGE, IMAGE)
    other = Counting(release="2" if change == "version" else "1", granularity="word" if change == "options" else "line")
    Cached(other, tmp_path)(PAGE, IMAGE + 1 if change == "image" else IMAGE)
    assert other.calls == ["page"]
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b"null", b"\xff", b'{"words": [{"text": "x"}]}', b'{"words": []}']
)
def test_a_damaged_entry_is_read_anew_and_mended(tmp_path, damage, caplog):
    engine = Counting()
    cached = Cached(engine, tmp_path)
    first = cached(PAGE, IMAGE)
    (entry,) = tmp_path.iterdir()
    good = entry.read_bytes()
    entry.write_bytes(damage)
    with caplog.at_level(logging.WARNING):
        assert cached(PAGE, IMAGE) == first
    assert entry.read_bytes() == good
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert len(engine.calls) == 2


def test_an_entry_says_what_it_is(tmp_path):
    Cached(Counting(), tmp_path)(PAGE, IMAGE)
    (entry,) = tmp_path.iterdir()
    content = json.loads(entry.read_text())
    assert content["engine"] == "counting"
    assert content["options"] == {"granularity": "line"}
    assert set(content) == {"format", "engine", "version", "options", "image", "words"}


def test_a_failure_warns_once_gives_no_words_and_is_not_kept(tmp_path, caplog):
    engine = Counting(failure=EngineFailure("page: engine failed"))
    with caplog.at_level(logging.WARNING):
        assert Cached(engine, tmp_path)(PAGE, IMAGE) == []
    assert [record.getMessage() for record in caplog.records] == ["page: engine failed"]
    assert list(tmp_path.iterdir()) == []


def test_other_errors_pass_through(tmp_path):
    with pytest.raises(ModuleNotFoundError):
        Cached(Counting(failure=ModuleNotFoundError("no engine")), tmp_path)(PAGE, IMAGE)


def test_given_words_are_never_mixed_up_between_pages_with_one_picture(tmp_path):
    cached = Cached(GivenWords("line"), tmp_path)
    for text in ("a", "b"):
        page = Page(text, b"", words=(Word.from_box(text, (0, 0, 1, 1)),))
        assert [word.text for word in cached(page, IMAGE)] == [text]
    assert list(tmp_path.iterdir()) == []


def test_a_plain_function_with_the_same_attributes_can_be_cached(tmp_path):
    class Plain:
        name, version, options = "plain", "1", {}

        def __call__(self, page: Page, image: np.ndarray) -> list[Any]:
            return WORDS

    assert Cached(Plain(), tmp_path)(PAGE, IMAGE) == Cached(Plain(), tmp_path)(PAGE, IMAGE)


def test_a_cache_that_cannot_be_written_only_warns(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING):
        assert len(Cached(Counting(), tmp_path / "file" / "ocr")(PAGE, IMAGE)) == 2
    assert "words are not cached" in caplog.text


def test_the_folder_follows_the_environment(monkeypatch):
    monkeypatch.setenv("HEADSCOPE_CACHE", "/own")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_folder() == Path("/own")
    monkeypatch.setenv("HEADSCOPE_CACHE", "")
    assert cache_folder() == Path("/xdg/headscope")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "headscope"
