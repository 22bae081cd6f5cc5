"""`headscope gate` prints a verdict and writes what it rests on; the verdict is no error unless it is asked to be."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from headscope.families.projections import projections
from headscope.sparsity import Thresholds
from headscope.sparsity.threshold_file import PROVENANCE
from headscope.sparsity.thresholds import PROJECTIONS
from tests.cli.command import Outcome

Run = Callable[..., Outcome]
SMALL = ("gate", "model=reader", "pages.limit=1", "pictures=[2]", "each=1", "depths=[0.5]", "scored=8")


def test_a_whole_cache_is_admitted_and_a_small_one_is_not(run: Run, stand: Path) -> None:
    full = run(*SMALL, "keep_kv=1", "out=full.json", "strict=true")
    assert full.code == 0 and "\nadmitted\n" in full.out, full.err
    small = run(*SMALL, "per_head=17", "window=16", "dense=full.json", "out=small.json", "max_rise=0.01")
    assert small.code == 0 and "\nnot admitted\n- " in small.out
    assert "dense 1 of" not in small.out and small.out.count(" of 3: ") == 3
    kept, lost = (json.loads((stand / name).read_text()) for name in ("full.json", "small.json"))
    assert kept["admitted"] and not kept["reasons"] and not lost["admitted"] and lost["reasons"]
    assert lost["windows"][0]["dense"] == kept["windows"][0]["dense"]
    assert lost["configuration"] == {
        "select": {"_target_": "headscope.select.observation_window", "pool": 7, "sinks": 4},
        "per_head": 17,
        "rule": "uniform",
        "window": 16,
    }
    assert kept["model"]["id"] == "reader-22m" and kept["hardware"] and kept["software"] and "commit" in kept
    assert {at["test"] for at in kept["placements"]} == {"2 pictures", "keys"}
    assert not list(stand.glob("*.progress.jsonl"))


def test_sparse_activations_are_judged_alone_and_with_a_cache(run: Run, stand: Path, reader: Any) -> None:
    shape = (12, len(PROJECTIONS))
    weights = torch.tensor([[layer[name].weight.numel() for name in PROJECTIONS] for layer in projections(reader[0])])
    given = {"kept": torch.ones(shape), "weights": weights, "provenance": {name: {} for name in PROVENANCE}}
    Thresholds(torch.full(shape, 1e-9), **given).save("near.json")
    Thresholds(torch.full(shape, 1e3), **given).save("all.json")
    words = (*SMALL, "tests=[perplexity]", "max_rise=0.01")
    near = run(*words, "sparsity=near.json", "keep_kv=1", "out=both.json")
    assert near.code == 0 and "\nadmitted\n" in near.out, near.err
    gone = run(*words, "sparsity=all.json", "dense=both.json", "out=alone.json")
    assert "\nnot admitted\n" in gone.out, gone.err
    alone = json.loads((stand / "alone.json").read_text())["configuration"]
    assert alone.keys() == {"sparsity", "sparsity_sha256", "sparsity_keep"} and alone["sparsity"] == "all.json"


def test_strict_gives_what_is_not_admitted_an_exit_code(run: Run, stand: Path) -> None:
    words = (*SMALL, "tests=[keys]", "per_head=17", "window=16", "out=small.json", "strict=true")
    with pytest.raises(SystemExit) as caught:
        run(*words)
    assert caught.value.code == 3 and not json.loads((stand / "small.json").read_text())["admitted"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give what is to be judged: `keep_kv`, `per_head` or `budget`, `sparsity`, or both kinds"),
        (["keep_kv=.5", "per_head=9"], "`keep_kv` and `per_head` exclude each other; give one of them"),
        (["keep_kv=1.5"], "`keep_kv` must be a part of the cache, above 0 and at most 1, got 1.5"),
        (["budget=none.json"], "`budget` must be a file, none.json is none"),
        (["sparsity=none.json"], "`sparsity` must be a file, none.json is none"),
        (["keep_kv=.5", "max_rise=-1"], "`max_rise` must be a rise of perplexity, at least 0, got -1.0"),
        (["-m", "keep_kv=.5", "strict=true"], "`strict` gives one command an exit code; leave it out of a multirun"),
        (["keep_kv=.5", "tests=[recall]"], "`tests` must be some of perplexity, passkey, multikey, pictures, keys"),
        (["keep_kv=.5", "window=0"], "`window` must be a whole number of tokens above 0, got 0"),
    ],
)
def test_what_cannot_be_judged_is_refused_before_anything_is_measured(
    run: Run, stand: Path, words: list[str], message: str
) -> None:
    refused = run(*SMALL, *words)
    assert refused.code == 2 and message in refused.err and "dense 1" not in refused.out
    assert not list(stand.glob("*.json*"))


def test_a_model_that_has_to_be_fetched_says_how(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from headscope.cli import model

    def missing(*parts: str) -> Path:
        raise FileNotFoundError("no")

    monkeypatch.setattr(model, "find", missing)
    refused = run("gate", "model=smollm2", "keep_kv=.5")
    assert refused.code == 2 and "`model` smollm2-135m is not here yet; run `make smollm2`" in refused.err
