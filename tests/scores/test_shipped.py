"""Shipped scores: found by the model they belong to, from any folder."""

from __future__ import annotations

import pytest

from headscope.scores import HeadScores, find_shipped, shipped


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder that stands in for the shipped one."""
    monkeypatch.setattr(shipped, "find", lambda name: tmp_path)
    HeadScores.from_values([[1, 2]], id="Qwen/Qwen2-VL-7B-Instruct").save(tmp_path / "qwen2-vl-7b.json")
    HeadScores.from_values([[1, 2]], id="reader-22m").save(tmp_path / "reader-22m.json")
    (tmp_path / "notes.json").write_text("no JSON")
    (tmp_path / "numbers.json").write_text("[1, 2]")
    return tmp_path


@pytest.mark.parametrize("model", ["reader-22m", "some/READER-22M", "models/reader-22m/"])
def test_the_file_name_is_the_last_part_of_the_model_id(folder, model):
    assert find_shipped(model) == folder / "reader-22m.json"


def test_else_the_file_says_which_model_it_is_of(folder):
    assert find_shipped("local/copies/qwen2-vl-7b-instruct") == folder / "qwen2-vl-7b.json"


def test_a_model_without_shipped_scores_is_told_how_to_make_them(folder):
    with pytest.raises(
        FileNotFoundError,
        match=r"`scores/Llava.json` does not ship .*make it with `headscope probe model=org/Llava out=Llava.json`",
    ):
        find_shipped("org/Llava")


def test_the_shipped_folder_is_found_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"`scores/no-such-model.json` does not ship with headscope"):
        find_shipped("no-such-model")
