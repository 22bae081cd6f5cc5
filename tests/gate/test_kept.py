"""What is kept on disk: found again under the same settings only, whatever a crash left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from headscope.gate.kept import Kept


def test_records_are_found_again_under_the_same_settings_only(tmp_path: Path) -> None:
    path = tmp_path / "state.jsonl"
    kept = Kept.open(path, {"a": 1, "b": 2})
    assert kept.keep("one", [1.5]) == [1.5]
    kept.keep("two", "text")
    assert Kept.open(path, {"b": 2, "a": 1}).records == {"one": [1.5], "two": "text"}
    assert Kept.open(path, {"a": 1}).records == {}


def test_runs_that_share_a_file_leave_each_other_s_lines(tmp_path: Path) -> None:
    path = tmp_path / "state.jsonl"
    first, second = Kept.open(path, {"run": 1}), Kept.open(path, {"run": 2})
    first.keep("same", 1)
    second.keep("same", 2)
    first.keep("more", 3)
    assert Kept.open(path, {"run": 1}).records == {"same": 1, "more": 3}
    assert Kept.open(path, {"run": 2}).records == {"same": 2}


def test_a_line_that_a_crash_cut_off_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "state.jsonl"
    Kept.open(path, {}).keep("one", 1)
    with path.open("a") as file:
        file.write('{"of": "x", "key": "tw')
    again = Kept.open(path, {})
    again.keep("three", 3)
    assert Kept.open(path, {}).records == {"one": 1, "three": 3}


def test_without_a_path_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    kept = Kept.open(None, {})
    kept.keep("one", 1)
    assert kept.records == {"one": 1} and not list(tmp_path.iterdir())
