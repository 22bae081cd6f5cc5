"""Configs by name, by path, by hub id, as dicts and objects; mistakes name what is near."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import headscope as hs
from headscope.accounting.config import as_config, from_dict, load_config, names
from headscope.resources import find


def test_every_bundled_config_is_read_and_accounted_for() -> None:
    assert set(names()) >= {"llama-3.1-8b", "mistral-7b", "qwen2-vl-7b", "reader"}
    for name in names():
        assert hs.account(name).step.total > 0


def test_the_names_are_those_of_the_files_and_of_the_command_lines_models() -> None:
    index = json.loads(find("data", "configs", "names.json").read_text())
    files = {path.name.removesuffix(".json") for path in find("data", "configs").glob("*.json")} - {"names"}
    assert set(index) == files
    for name, hub_ids in index.items():
        text = find("conf", "model", f"{name}.yaml").read_text()
        assert any(f"path: {hub_id}\n" in text or f"path: {hub_id} " in text for hub_id in hub_ids)


def test_hub_ids_of_bundled_configs_need_no_hub() -> None:
    assert load_config("meta-llama/Llama-3.1-8B").to_dict() == load_config("llama-3.1-8b").to_dict()
    assert load_config("reader-22m").to_dict() == load_config(find("data", "reader")).to_dict()


def test_a_folder_a_file_a_dict_and_an_object_say_the_same(tmp_path: Path) -> None:
    values = json.loads(find("data", "configs", "qwen3-8b.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(values))
    expected = hs.account("qwen3-8b").bounds
    for given in (tmp_path, str(tmp_path), tmp_path / "config.json", values, load_config("qwen3-8b")):
        assert hs.account(given).bounds == expected
    assert hs.account(values).name == "qwen3" and hs.account(values, name="mine").name == "mine"


def test_a_config_of_the_old_flat_layout_is_that_of_the_new_one() -> None:
    """Qwen2-VL's config.json has its decoder's numbers at the top; transformers now writes them in `text_config`."""
    flat = json.loads(find("data", "configs", "qwen2-vl-7b.json").read_text())
    nested = from_dict(flat).to_dict()
    assert "text_config" in nested and "text_config" not in flat
    assert hs.account(flat).step == hs.account(nested).step


@pytest.mark.parametrize("name", ["llama-3.1-8", "llama3.1-8b", "qwen3-8B"])
def test_a_name_with_a_slip_gets_the_near_names(name: str) -> None:
    with pytest.raises(ValueError, match=r"`model` has no config .*; near: .*(llama-3.1-8b|qwen3-8b)"):
        load_config(name)


def test_other_mistakes_say_what_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError, match="must be a folder with a config.json"):
        load_config(tmp_path)
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(ValueError, match="a config that is a JSON object, .* holds a list"):
        load_config(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match="must have a config in JSON"):
        load_config(tmp_path)
    with pytest.raises(ValueError, match="`model_type` must be one that transformers knows, got lama; near: .*llama"):
        from_dict({"model_type": "lama"})
    with pytest.raises(ValueError, match="`model_type` must be one that transformers knows, got none"):
        from_dict({"hidden_size": 3})
    with pytest.raises(ValueError, match="`config` must be a transformers config, a dict, a path, or one of"):
        as_config(3)


def test_a_hub_that_does_not_give_it_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import PreTrainedConfig

    def refuse(name: str, **_: object) -> None:
        raise OSError(f"{name} is not there.\nMore lines.")

    monkeypatch.setattr(PreTrainedConfig, "get_config_dict", refuse)
    with pytest.raises(FileNotFoundError, match=r"`model` 'some/model' .* \(some/model is not there\); check the name"):
        load_config("some/model")


def test_the_hub_is_asked_for_what_does_not_ship_and_for_a_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import PreTrainedConfig

    asked = []

    def give(name: str, revision: str | None = None) -> tuple[dict[str, object], dict[str, object]]:
        asked.append((name, revision))
        return {"model_type": "qwen3", "hidden_size": 64}, {}

    monkeypatch.setattr(PreTrainedConfig, "get_config_dict", give)
    assert load_config("some/model").hidden_size == 64
    assert load_config("Qwen/Qwen3-8B", revision="abc").hidden_size == 64
    assert asked == [("some/model", None), ("Qwen/Qwen3-8B", "abc")]


def test_a_gguf_file_says_its_config_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import PreTrainedConfig

    def give(folder: str, gguf_file: str) -> tuple[dict[str, object], dict[str, object]]:
        assert (folder, gguf_file) == (str(tmp_path), "a.gguf")
        return {"model_type": "llama", "hidden_size": 64}, {}

    monkeypatch.setattr(PreTrainedConfig, "get_config_dict", give)
    monkeypatch.setattr("headscope.accounting.config.find_spec", lambda name: name)
    (tmp_path / "a.gguf").touch()
    assert load_config(tmp_path).hidden_size == load_config(tmp_path / "a.gguf").hidden_size == 64
    (tmp_path / "b.gguf").touch()
    with pytest.raises(FileNotFoundError, match="has 2 GGUF files; give one of them"):
        load_config(tmp_path)
    monkeypatch.setattr("headscope.accounting.config.find_spec", lambda name: None)
    with pytest.raises(ImportError, match="needs the package gguf"):
        load_config(tmp_path / "a.gguf")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"context": 0}, "`context` must be a whole number above 0, got 0"),
        ({"batch": 1.5}, "`batch` must be a whole number above 0, got 1.5"),
        ({"draft_tokens": 0}, "`draft_tokens` must be a whole number above 0, got 0"),
        ({"keep_act": 0}, "`keep_act` must be a part that is kept"),
        ({"weight_dtype": "int5"}, "`weight_dtype` must be one of"),
    ],
)
def test_an_account_refuses_what_makes_no_sense(asked: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        hs.account("qwen3-8b", **asked)
