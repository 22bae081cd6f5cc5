"""Text models load by folder and by GGUF file, with the tokenizer that belongs to them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from headscope.families import text
from headscope.families.identity import model_identity
from headscope.families.text import is_text, load_text
from tests.families.tiny import TINY
from tests.families.tiny_gguf import write_gguf
from tests.gate.tiny import text_model, tokenizer

IDS = torch.arange(2, 42)[None]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny-text"
    text_model().save_pretrained(path)
    tokenizer().save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def gguf_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("gguf")
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write_gguf(text_model(), path)
    return path


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(IDS).logits


def test_a_folder_gives_the_model_and_its_tokenizer(folder: Path) -> None:
    model, own = load_text(folder)
    assert torch.equal(logits(model), logits(text_model())) and not model.training
    assert own("the key").input_ids == tokenizer()("the key").input_ids
    assert model_identity(model)["id"] == "tiny-text" and model_identity(model)["family"] == "llama"


def test_a_gguf_file_gives_the_same_model(gguf_file: Path) -> None:
    """Also by its folder, where it is the only one."""
    for name in (gguf_file, str(gguf_file.parent)):
        model, own = load_text(name, dtype="float32")
        torch.testing.assert_close(logits(model), logits(text_model()), atol=1e-5, rtol=0)
        assert own.decode(own("the key is K47.").input_ids) == "the key is K47."
    assert load_text(gguf_file, dtype="bfloat16")[0].dtype == torch.bfloat16


def test_text_models_are_told_from_vision_models(folder: Path, gguf_file: Path, reader_path: Path) -> None:
    assert is_text(folder) and is_text(gguf_file) and is_text(gguf_file.parent) and not is_text(reader_path)


def test_a_folder_with_several_gguf_files_does_not_say_which(gguf_file: Path, tmp_path: Path) -> None:
    for name in ("a.gguf", "b.gguf"):
        shutil.copy(gguf_file, tmp_path / name)
    with pytest.raises(ValueError, match="holds 2 GGUF files; give one of them, such as a.gguf"):
        load_text(tmp_path)


def test_a_gguf_file_without_its_package_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr(text, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"needs the package gguf; run pip install 'headscope\[gguf\]'"):
        load_text(tmp_path / "a.gguf")


def test_what_cannot_be_loaded_is_refused_in_one_line(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    (tmp_path / "broken.gguf").write_bytes(b"GGUF and no more")
    with pytest.raises(ValueError, match=r"the tokenizer of `model` '.*broken.gguf' cannot be read"):
        load_text(tmp_path / "broken.gguf")
    with pytest.raises(FileNotFoundError, match="`model` must be a local folder or a name on the Hugging Face hub"):
        load_text(tmp_path / "none.gguf")
    with pytest.raises(ValueError, match="`dtype` must be one of auto, float32"):
        load_text(folder, dtype="int4")
    with pytest.raises(ValueError, match="`device` and `device_map` exclude each other"):
        load_text(folder, device="cpu", device_map="auto")


def test_a_vision_model_stays_one(tmp_path: Path) -> None:
    for part in TINY["qwen2_vl"]():
        part.save_pretrained(tmp_path)
    assert not is_text(tmp_path)
