"""The verbs that measure refuse what they cannot do, in one line."""

from __future__ import annotations

import importlib
import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from headscope.files import write_atomically
from headscope.report import bench_table
from headscope.resources import find
from tests.cli.command import Outcome
from tests.report.documents import DOCUMENTS

Run = Callable[..., Outcome]
ABLATION = ("evaluate", "ablation", "model=reader", "pages.limit=1")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*ABLATION, "sizes=[0]"), "`sizes` must silence at least one head"),
        ((*ABLATION, "draws=-1"), "`draws` must be at least 0, got -1"),
        ((*ABLATION, "batch=0"), "`batch` must be at least 1, got 0"),
        ((*ABLATION, "max_new_tokens=0"), "`max_new_tokens` must be at least 1, got 0"),
        ((*ABLATION, "device=nowhere"), "`device` must be one that torch can use here"),
        (("bench", "probe", "limit=0"), "`limit` must be a whole number of pages, at least 1"),
        (("bench", "probe", "device=nowhere"), "`device` must be one that torch can use here"),
        (("bench", "probe", "device=cpu", "memory=true"), "`memory` is measured on a GPU only, got device cpu"),
        (("bench", "decode", "shapes=vicuna"), "no config 'vicuna'; near: vicuna-7b"),
        (("bench", "decode", "contexts=[2048,0]"), "`contexts` must be whole numbers, each at least 1, got [2048, 0]"),
        (("bench", "decode", "batches=[]"), "`batches` must be whole numbers, each at least 1, got none"),
        (("bench", "decode", "budgets=16"), "`budgets` must be whole numbers, each at least 32, got [16]"),
        (("bench", "decode", "layers=0"), "`layers` must be whole numbers, each at least 1, got [0]"),
        (("bench", "memory", "contexts=16"), "`contexts` must be whole numbers, each at least 32, got [16]"),
        (("bench", "kernels", "only=[cells,speed]"), "`only` must be some of check_decode, check_moves"),
        (("bench", "linear", "only=speed"), "`only` must be some of check, measure, tune, got 'speed'"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(run: Run, stand: Path, words: tuple[str, ...], message: str) -> None:
    shown = run(*words, "out=x.json")
    assert (shown.code, shown.err.count("\n")) == (2, 1), shown.err
    assert message in shown.err
    assert list(stand.iterdir()) == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("bench", ["decode", "memory", "kernels", "linear"])
def test_what_is_measured_on_a_gpu_says_so_where_there_is_none(run: Run, stand: Path, bench: str) -> None:
    shown = run("bench", bench, "out=x.json")
    assert (shown.code, shown.err.count("\n")) == (2, 1), shown.err
    assert "measured on a GPU, and PyTorch sees none here" in shown.err and list(stand.iterdir()) == []


@pytest.mark.parametrize("bench", ["decode", "memory"])
def test_a_bench_measures_the_same_from_the_command_line_and_as_a_module(bench: str) -> None:
    """Where Hydra is not at hand, `python -m headscope.bench.<name>` takes the defaults of `run`."""
    own = inspect.signature(importlib.import_module(f"headscope.bench.{bench}").run).parameters
    typed = OmegaConf.load(find("conf", f"bench-{bench}.yaml"))
    for name, parameter in own.items():
        if parameter.kind == parameter.KEYWORD_ONLY:
            default = parameter.default
            assert typed[name] == (list(default) if isinstance(default, tuple) else default)


def test_benches_need_nothing_of_the_command_line() -> None:
    absent = ("hydra", "omegaconf", "matplotlib", "easyocr", "datasets")
    names = ("decode", "memory", "kernels", "linear")
    code = f"import sys; sys.modules.update(dict.fromkeys({absent})); import importlib\n"
    code += f"for name in {names}: importlib.import_module('headscope.bench.' + name)"
    subprocess.run([sys.executable, "-c", code], check=True)


def measured(bench: str) -> Callable[..., dict[str, Any]]:
    """Stand in for the bench's `run`: write some cells that it could have measured."""

    def run(out: Path, **settings: Any) -> dict[str, Any]:
        write_atomically(out, json.dumps(DOCUMENTS[bench]))
        return DOCUMENTS[bench] | {"settings": settings}

    return run


@pytest.mark.parametrize("bench", ["decode", "memory"])
def test_a_bench_writes_its_result_and_its_plot_and_prints_the_table(
    run: Run, stand: Path, bench: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.import_module(f"headscope.bench.{bench}"), "run", measured(bench))
    shown = run("bench", bench)
    assert shown.code == 0, shown.err
    assert f"wrote scores/bench/{bench}-cuda.json, scores/bench/{bench}-cuda.png" in shown.out
    again = run("report", f"result=scores/bench/{bench}-cuda.json", "picture=again.png")
    assert again.code == 0, again.err
    table = getattr(bench_table, f"of_{bench}")(DOCUMENTS[bench], f"scores/bench/{bench}-cuda.json")
    assert table in shown.out and table in again.out
    assert (stand / "again.png").read_bytes() == (stand / f"scores/bench/{bench}-cuda.png").read_bytes()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give what is to be shown: `scores` or `result`"),
        (("result=r.json", "scores=s.json"), "`scores` and `result` exclude each other"),
        (("result=gone.json",), "gone.json"),
        (("result=r.json",), "`result` must be a result file of `headscope bench`, r.json is none"),
        (("result=k.json",), "`result` must be of one of the benches decode, memory"),
        (("result=empty.json",), "`result` must hold cells that were measured, empty.json has none"),
    ],
)
def test_what_is_no_result_is_not_shown(run: Run, stand: Path, words: tuple[str, ...], message: str) -> None:
    (stand / "r.json").write_text("[1]")
    (stand / "k.json").write_text('{"bench": "kernels"}')
    (stand / "empty.json").write_text(json.dumps(DOCUMENTS["decode"] | {"cells": []}))
    shown = run("report", *words)
    assert (shown.code, shown.err.count("\n")) == (2, 1), shown.err
    assert message in shown.err and len(list(stand.iterdir())) == 3
