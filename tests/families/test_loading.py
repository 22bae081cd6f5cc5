"""Loading: what was saved comes back, and what cannot be loaded is refused in one line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from logging import getLogger
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor, PreTrainedConfig
from transformers.utils import logging

from headscope.families import detect
from headscope.families.loading import load, model_identity, read_config
from tests.families.tiny import TINY
from tests.families.tiny_qwen import READER

Refuse = Callable[..., None]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    for part in TINY["qwen2_vl"]():
        part.save_pretrained(folder)
    return folder


@pytest.fixture
def copied(saved: Path, tmp_path: Path) -> Path:
    return shutil.copytree(saved, tmp_path / "tiny")


@pytest.fixture
def refuse() -> Refuse:
    """Assert that a load is refused with one line."""

    def refuse(kind: type[Exception], match: str, *args: Any, **kwargs: Any) -> None:
        with pytest.raises(kind, match=match) as caught:
            load(*args, **kwargs)
        assert type(caught.value) is kind
        assert "\n" not in str(caught.value)

    return refuse


@pytest.fixture
def nothing_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("something was loaded")

    monkeypatch.setattr(AutoModelForImageTextToText, "from_pretrained", fail)
    monkeypatch.setattr(AutoProcessor, "from_pretrained", fail)


@pytest.mark.parametrize("name", TINY)
def test_a_saved_model_loads_again(name, tmp_path):
    model, processor = TINY[name]()
    model.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    again, its_processor, family = load(tmp_path)
    assert family is detect(model.config)
    assert type(its_processor) is type(processor)
    assert not again.training
    weights = again.state_dict()
    assert all(torch.equal(weight, weights[key]) for key, weight in model.state_dict().items())
    assert model_identity(again) == model_identity(model) | {"id": tmp_path.name}


def test_the_bundled_model_loads_in_its_own_dtype_or_the_one_asked_for():
    assert load(str(READER))[0].dtype == torch.bfloat16
    assert load(READER, dtype="float32", device="cpu")[0].dtype == torch.float32
    assert load(READER, dtype=torch.float16)[0].dtype == torch.float16


def test_a_device_map_is_passed_on(saved):
    pytest.importorskip("accelerate")
    assert load(saved, device_map={"": "cpu"})[0].device.type == "cpu"


def test_no_progress_bar_is_shown_and_the_setting_is_restored(saved, capfd):
    assert logging.is_progress_bar_enabled()
    load(saved)
    assert logging.is_progress_bar_enabled()
    assert "Loading weights" not in capfd.readouterr().err


def test_a_home_folder_is_expanded(saved, monkeypatch):
    monkeypatch.setenv("HOME", str(saved.parent))
    assert read_config("~/tiny").model_type == "qwen2_vl"


@pytest.mark.parametrize("config", [{"model_type": "gpt_oss"}, {"model_type": "made_up"}, {"hidden_size": 4}])
def test_a_model_of_no_known_family_is_refused_before_anything_is_loaded(config, tmp_path, refuse, nothing_loads):
    (tmp_path / "config.json").write_text(json.dumps(config))
    given = config.get("model_type", "none")
    refuse(ValueError, rf"`model_type` must be one of qwen2_vl, .* got {given}; docs/families\.md", tmp_path)


@pytest.mark.parametrize(
    ("name", "match"),
    [
        (
            "missing/deep/down",
            "must be a local folder or a name on the Hugging Face hub, got 'missing/deep/down', neither",
        ),
        ("/missing", "got '/missing', neither"),
        ("~/missing", "got '~/missing', neither"),
        ("./missing", "got './missing', neither"),
        (Path("missing"), "got 'missing', neither"),
        ("what is this", "neither"),
        ("", "got '', neither"),
        (__file__, "must be a folder with a config.json, .* is a file"),
        (Path(__file__).parent, "must be a folder with a config.json, .* has none"),
    ],
)
def test_what_is_no_model_is_refused_without_asking_the_hub(name, match, refuse, nothing_loads, monkeypatch):
    monkeypatch.setattr(PreTrainedConfig, "get_config_dict", None)
    refuse(FileNotFoundError, match, name)


def test_a_name_that_the_hub_does_not_give_is_refused(refuse, nothing_loads, monkeypatch, capfd):
    def offline(*args: Any, **kwargs: Any) -> None:
        getLogger("huggingface_hub.utils._http").warning("Retrying in 1s [Retry 1/5].")
        raise OSError("We couldn't connect to the hub.\nCheck your connection.")

    monkeypatch.setattr(PreTrainedConfig, "get_config_dict", offline)
    match = r"'owner/model' is no folder here, and .* hub does not give it \(We .* the hub\); .* offline: give"
    refuse(FileNotFoundError, match, "owner/model")
    assert "Retry" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("{half", "has a broken config.json"),
        ("[]", "has a broken config.json"),
        ('{"model_type": "qwen2_vl", "text_config": 7}', "the config of `model` .* cannot be read: .*text_config"),
    ],
)
def test_a_broken_config_is_refused(content, match, tmp_path, refuse, nothing_loads):
    (tmp_path / "config.json").write_text(content)
    refuse(ValueError, match, tmp_path)


def test_a_folder_without_weights_is_refused(copied, refuse):
    (copied / "model.safetensors").unlink()
    refuse(FileNotFoundError, "the model of `model` .* cannot be read: .*model.safetensors", copied)


def test_weights_that_were_cut_are_refused(copied, refuse):
    file = copied / "model.safetensors"
    file.write_bytes(file.read_bytes()[:5000])
    refuse(ValueError, "the model of `model` .* cannot be read", copied)


def test_a_checkpoint_that_lacks_weights_is_refused(tmp_path, refuse):
    model, processor = TINY["qwen2_vl"]()
    kept = {key: weight for key, weight in model.state_dict().items() if "layers.1.mlp.up_proj" not in key}
    model.save_pretrained(tmp_path, state_dict=kept)
    processor.save_pretrained(tmp_path)
    refuse(ValueError, r"lacks 1 of its weights, such as .*layers\.1\.mlp\.up_proj", tmp_path)


def test_a_folder_without_its_tokenizer_is_refused(copied, refuse):
    for file in copied.glob("tokenizer*"):
        file.unlink()
    refuse(ValueError, "must give its picture token the id 5", copied)


def test_a_folder_without_picture_settings_is_refused(copied, refuse):
    (copied / "processor_config.json").unlink()
    refuse(FileNotFoundError, "the processor of `model` .* cannot be read", copied)


def test_settings_that_cannot_be_are_refused_before_anything_is_loaded(saved, refuse, nothing_loads):
    refuse(ValueError, "`dtype` must be one of auto, float32, .* got 'float31'", saved, dtype="float31")
    refuse(ValueError, "`device` and `device_map` exclude each other", saved, device="cpu", device_map="auto")
    refuse(ValueError, "`device` must be one that torch can use here, got 'nowhere'", saved, device="nowhere")
