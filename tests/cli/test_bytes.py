"""``headscope bytes``: a config in, the account of a decode step out, as a table, as JSON, and as a plot."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import headscope as hs
from headscope.cli import account_text
from headscope.resources import find
from tests.cli.command import Outcome

Run = Callable[..., Outcome]
K = 1024


def test_the_table_says_what_the_paper_says(run: Run) -> None:
    shown = run("bytes", "model=llama-3.1-8b", "context=131072", "keep_act=.5", "keep_kv=.3", "batch=1")
    assert (shown.code, shown.err) == (0, "")
    lines = shown.out.splitlines()
    assert lines[0] == "model meta-llama/Llama-3.1-8B-Instruct"
    assert "32 layers: 436.2 MB of projections, 4096 bytes of keys and values a token" in lines
    assert "crossover in tokens (K = 1024): all projections 74.3K, feed-forward alone 60.0K" in lines
    assert ["cache", "30.0", "%", "12.03", "GB", "1.60x"] in [line.split() for line in lines]
    assert ["total", "32.19", "GB", "100.0", "%"] in [line.split() for line in lines]


def test_json_is_one_object_and_nothing_else(run: Run) -> None:
    words = ["context=131072", "keep_act=.5", "keep_kv=.3", "batch=1", "format=json"]
    shown = run("bytes", "model=llama-3.1-8b", *words)
    assert (shown.code, shown.err) == (0, "")
    found = json.loads(shown.out)
    assert round(found["crossover_tokens"] / K, 1) == 74.3
    assert round(found["crossover_feed_forward_tokens"] / K, 1) == 60.0
    assert round(found["bounds"]["kv"], 2) == 1.6
    assert found["bytes"]["kv"] == 4096 * 32 * 131072


def test_what_is_printed_is_what_is_written(run: Run, stand: Path) -> None:
    shown = run("bytes", "model=reader", "format=json", "out=new/a.json", "plot=new/a.png")
    assert (stand / "new" / "a.json").read_text() == shown.out
    assert (stand / "new" / "a.png").read_bytes().startswith(b"\x89PNG")
    shown = run("bytes", "model=reader", "out=a.txt", "plot=b.png")
    assert (stand / "a.txt").read_text() + "wrote a.txt, b.png\n" == shown.out


@pytest.mark.parametrize("model", ["mistral-7b", "mistral-7b-v0.3", "mistralai/Mistral-7B-Instruct-v0.3"])
def test_a_bundled_config_goes_by_name_and_by_hub_id(run: Run, model: str) -> None:
    shown = run("bytes", f"model={model}")
    assert shown.code == 0 and "all projections 74.3K" in shown.out


def test_a_folder_with_a_config_and_a_config_file_will_do(run: Run, stand: Path) -> None:
    (stand / "mine").mkdir()
    (stand / "mine" / "config.json").write_text(find("data", "configs", "qwen3-8b.json").read_text())
    for path in ("mine", "mine/config.json"):
        shown = run("bytes", f"model={path}")
        assert shown.code == 0 and "all projections 65.7K, feed-forward alone 51.4K" in shown.out


def test_every_key_reaches_the_account(run: Run) -> None:
    words = "context=65536 batch=8 keep_act=.7 keep_kv=.2 weight_dtype=int4 kv_dtype=fp8 dtype=fp16 draft_tokens=1024"
    found = json.loads(run("bytes", "model=qwen2-vl-7b", *words.split(), "gamma=5", "acceptance=.8", "format=json").out)
    expected = hs.account(
        "qwen2-vl-7b", context=65536, batch=8, keep_act=0.7, keep_kv=0.2, weight_dtype="int4", kv_dtype="fp8",
        dtype="fp16", draft_tokens=1024,
    )  # fmt: skip
    assert found["bounds"] == expected.bounds and found["bytes"]["total"] == round(expected.step.total)
    assert found["dtypes"] == {"weight": "int4", "kv": "fp8", "rest": "fp16"}
    speculation = found["speculation"]
    assert (speculation["kept"], speculation["gamma"]) == (1024, 5)
    assert [at["acceptance"] for at in speculation["at_acceptance"]] == [0.8]


def test_the_table_tells_windows_experts_towers_and_drafts(run: Run, stand: Path) -> None:
    Path("config.json").write_text(json.dumps({"model_type": "gemma3_text", "sliding_window": 1024}))
    shown = run("bytes", "model=config.json").out
    assert "bytes of keys and values a token, of the last 1024 tokens\n" in shown
    shown = run("bytes", "model=qwen3-30b-a3b", "acceptance=.9").out
    assert "48 layers: 113.2 MB of projections with 8 of 128 experts, 2048 bytes" in shown
    assert "a draft step costs 0.76 of a plain one, a verifying step 3.57\n" in shown
    assert "breaks even at gamma 9 with 104.4 % (never) of the proposed tokens accepted" in shown
    assert shown.count("none") == 1
    shown = run("bytes", "model=qwen2-vl-7b", "batch=8", "draft_tokens=1024", "acceptance=.9", "weight_dtype=4.25").out
    assert "one decode step of 8 at 32768 tokens; projections 4.25 bits, cache bfloat16, the rest bfloat16\n" in shown
    shown = run("bytes", "model=qwen2-vl-7b", "batch=8", "draft_tokens=1024", "acceptance=.9").out
    assert "memory: 15.23 GB of weights, 1.352 GB of vision tower and projector, 15.03 GB of keys" in shown
    assert "drafts on 1024 of 32768 tokens: a draft step costs 0.50 of a plain one\n" in shown


def test_a_sliding_cache_may_never_save_as_much(run: Run) -> None:
    Path("config.json").write_text(json.dumps({"model_type": "mistral", "sliding_window": 4096}))
    shown = run("bytes", "model=config.json", "plot=a.png")
    assert shown.code == 0 and "all projections never, feed-forward alone never" in shown.out


def test_sizes_have_four_digits_and_short_contexts_no_k() -> None:
    assert [account_text.size(count) for count in (0, 512, 8192, 436_207_616, 32.19e9, 1.5e13)] == [
        "0 bytes", "512 bytes", "8.192 KB", "436.2 MB", "32.19 GB", "15 TB",
    ]  # fmt: skip
    assert [account_text.tokens(count) for count in (None, 74.4, 76068.6)] == ["never", "74", "74.3K"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "`model` is required: give model=..., one of"),
        (["model=llama-3.1"], "`model` has no choice 'llama-3.1'; near: llama-3.1-8b"),
        (["model=qwen3-8b", "keep_act=0"], "`keep_act` must be a part that is kept, above 0 and at most 1; got 0"),
        (["model=qwen3-8b", "keep_kv=30"], "`keep_kv` must be a part that is kept, above 0 and at most 1; got 30"),
        (["model=qwen3-8b", "context=0"], "`context` must be a whole number above 0, got 0"),
        (["model=qwen3-8b", "context=32K"], "`context` must be a whole number, got '32K'"),
        (["model=qwen3-8b", "acceptance=2"], "`acceptance` must be a number from 0 to 1, got 2"),
        (["model=qwen3-8b", "gamma=0"], "`gamma` must be a whole number above 0, got 0"),
        (["model=qwen3-8b", "draft_tokens=0"], "`draft_tokens` must be a whole number above 0, got 0"),
        (["model=qwen3-8b", "weight_dtype=int5"], "`weight_dtype` must be one of float64, "),
        (["model=qwen3-8b", "format=yaml"], "`format` must be one of table, json, got 'yaml'"),
        (["model=qwen3-8b", "kep_kv=.3"], "`kep_kv` is not a key of this verb; near: keep_kv"),
        (["model=qwen3-8b", "out=a.png", "plot=a.png"], "each file must have a path of its own"),
        (["model=."], "`model` must be a folder with a config.json, '.' has none"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(run: Run, stand: Path, words: list[str], message: str) -> None:
    shown = run("bytes", *words)
    assert (shown.code, shown.out) == (2, "")
    assert message in shown.err and shown.err.count("\n") == 1
    assert list(stand.iterdir()) == []


def test_a_sweep_writes_one_account_a_job(run: Run, stand: Path) -> None:
    words = ["format=json", "keep_act=.5,.7", "out=a.json", "hydra.sweep.dir=jobs"]
    assert run("bytes", "-m", "model=llama-3.1-8b,qwen3-8b", *words).code == 0
    found = [json.loads(path.read_text()) for path in stand.glob("jobs/*/a.json")]
    assert sorted(round(at["crossover_tokens"] / K, 1) for at in found) == [39.4, 44.6, 65.7, 74.3]
