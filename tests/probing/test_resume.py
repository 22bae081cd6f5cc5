"""Progress on disk survives an interruption and never mixes different runs."""

import dataclasses
import errno
from pathlib import Path

import pytest
import torch

from headscope.page import Page, Word
from headscope.probing.resume import Progress, page_key
from headscope.scores import PageRecord

SETTINGS = {"probe": {"match": "aligned"}}


def record(name: str = "a.png", value: float = 0.1) -> PageRecord:
    hit = torch.full((2, 3), value, dtype=torch.float64) / 3
    return PageRecord(name, "0" * 64, 4, 0, 9, 7, hit, hit / 7, torch.ones(2, 3).long(), torch.zeros(2, 3).long())


def same(left: PageRecord | None, right: PageRecord) -> bool:
    return left is not None and left.to_json() == right.to_json()


def test_a_second_run_finds_what_the_first_one_kept(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "x.progress.jsonl"
    Progress.open(path, SETTINGS).keep("k", record())
    again = Progress.open(path, SETTINGS)
    assert same(again.find("k"), record()) and again.find("other") is None


def test_other_settings_begin_anew(tmp_path: Path) -> None:
    path = tmp_path / "x.progress.jsonl"
    Progress.open(path, SETTINGS).keep("k", record())
    assert Progress.open(path, {"probe": {"match": "paper"}}).find("k") is None


@pytest.mark.parametrize("cut", [1, 40, 200])
def test_a_line_that_was_cut_off_is_dropped_and_the_rest_stays(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "x.progress.jsonl"
    first = Progress.open(path, SETTINGS)
    first.keep("k", record("a.png"))
    first.keep("m", record("b.png"))
    path.write_bytes(path.read_bytes()[:-cut])
    second = Progress.open(path, SETTINGS)
    assert same(second.find("k"), record("a.png"))
    second.keep("n", record("c.png"))
    assert same(Progress.open(path, SETTINGS).find("n"), record("c.png"))


def test_without_a_file_nothing_is_written(tmp_path: Path) -> None:
    progress = Progress.open(None, SETTINGS)
    progress.keep("k", record())
    assert same(progress.find("k"), record()) and not list(tmp_path.iterdir())


def test_a_pages_key_changes_with_all_that_its_values_come_from() -> None:
    page = Page("a.png", "a.png", words=(Word.from_box("x", (0, 0, 1, 1)),), text="x")
    others = [
        dataclasses.replace(page, name="b.png"),
        dataclasses.replace(page, words=(Word.from_box("y", (0, 0, 1, 1)),)),
        dataclasses.replace(page, words=None),
        dataclasses.replace(page, text="y"),
    ]
    keys = {page_key(page, "h"), page_key(page, "i"), *(page_key(other, "h") for other in others)}
    assert len(keys) == 6


def test_nothing_is_written_until_a_page_is_done(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "x.progress.jsonl"
    progress = Progress.open(path, SETTINGS)
    assert not list(tmp_path.iterdir())
    progress.keep("k", record())
    assert path.is_file()
    before = path.read_bytes()
    Progress.open(path, {"probe": {"match": "paper"}})
    assert path.read_bytes() == before


@pytest.mark.parametrize("begun", [False, True])
def test_a_full_disk_is_one_line_that_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "x.progress.jsonl"
    progress = Progress.open(path, SETTINGS)
    if begun:
        progress.keep("k", record("a.png"))
        path.unlink()
        path.symlink_to("/dev/full")
    else:
        monkeypatch.setattr("headscope.files._replace", full)
    with pytest.raises(OSError, match=r"x.progress.jsonl` could not be written: No space left on device; .*[^\n]$"):
        progress.keep("m", record("b.png"))
