"""Identity: a model is named by what it is, the same on every load and every machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headscope.families.identity import model_identity
from headscope.families.loading import load
from tests.families.tiny import TINY


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    for part in TINY["qwen2_vl"]():
        part.save_pretrained(folder)
    return folder


def test_the_identity_says_which_model_it_is_without_saying_where(saved, monkeypatch):
    monkeypatch.chdir(saved.parent)
    identity = model_identity(load("tiny")[0])
    digest = identity.pop("config_hash")
    shape = {"layers": 3, "heads": 4, "kv_heads": 2, "head_dim": identity["head_dim"]}
    assert identity == {"id": "tiny", "revision": None, "family": "qwen2_vl"} | shape
    assert identity["head_dim"] == TINY["qwen2_vl"]()[0].config.text_config.hidden_size // 4
    assert len(digest) == 64
    assert str(saved.parent) not in json.dumps(identity)


def test_a_model_of_the_hub_keeps_its_name_and_revision():
    model, _ = TINY["qwen2_vl"]()
    model.config._name_or_path, model.config._commit_hash = "owner/model", "0123abc"
    assert model_identity(model)["id"] == "owner/model"
    assert model_identity(model)["revision"] == "0123abc"


def test_the_config_hash_is_the_model_s_and_not_the_load_s(saved):
    model, _ = TINY["qwen2_vl"]()
    digest = model_identity(model)["config_hash"]
    assert model_identity(load(saved, dtype="bfloat16")[0])["config_hash"] == digest
    model.set_attn_implementation("eager")
    model.config.architectures, model.config.transformers_version = ["Other"], "0"
    assert model_identity(model)["config_hash"] == digest
    model.config.text_config.rms_norm_eps = 1e-3
    assert model_identity(model)["config_hash"] != digest
