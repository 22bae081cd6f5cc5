"""A plan recommends the fastest that is shown to be good enough, and says what each number rests on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import headscope as hs
from headscope.accounting.crossover import Keep
from headscope.bench import calibrate, crossing
from headscope.plan import Gpu, Plan, Results, find_gpu, plan
from headscope.plan.option import DENSE
from tests.bench.stand_in import COSTS, TB_PER_S, machine

K = 1024
H200 = {"gpu": "NVIDIA H200", "memory_gib": 139.8}
SHAPE = "llama-3.1-8b"
BOTH, KV, ACT = Keep(0.5, 0.3), Keep(1.0, 0.3), Keep(0.5, 1.0)


def gated(
    keep_kv: float = 1.0, keep_act: float = 1.0, rise: float = 0.1, context: int = 128 * K, **changes: Any
) -> Any:
    """A result of the gate."""
    configuration: dict[str, Any] = {} if keep_kv == 1 else {"keep_kv": keep_kv}
    configuration |= {} if keep_act == 1 else {"sparsity": "t.json", "sparsity_keep": keep_act}
    test = {"test": "passkey", "right_dense": 40, "lost": []} | changes.pop("test", {})
    document = {
        "format": "headscope.gate/1", "model": {"id": SHAPE}, "configuration": configuration, "commit": "abc",
        "protocol": {"context": context}, "perplexity": {"rise": rise}, "tests": [test],
    }  # fmt: skip
    return document | changes


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A calibration and a campaign of the stand-in, as if of an H200."""
    folder = tmp_path_factory.mktemp("results")
    known = calibrate.run(folder / "c.json", "abc", shapes=[SHAPE], device="cpu", process=machine())
    plain: dict[str, Any] = {"shapes": [SHAPE], "baselines": [], "device": "cpu", "process": machine(), "blocks": 2}
    found = crossing.run(folder / "x.json", "abc", apart="block", **plain)
    return {"calibration.json": known | {"hardware": H200}, "crossing.json": found | {"hardware": H200}}


def asked(documents: dict[str, Any], name: str = SHAPE, quality: float = 0.5, **settings: Any) -> Plan:
    """Plan on an H200."""
    acceptance = settings.pop("acceptance", None)
    results = Results(documents)
    account = hs.account(name, name=name, **{"context": 128 * K, "draft_tokens": K, **settings})
    gpu = find_gpu("h200", results.calibrations)
    return plan(account, gpu, results, quality=quality, names=[SHAPE], acceptance=acceptance)


def option(found: Plan, keep: Keep) -> Any:
    return next(each for each in found.options if each.keep == keep and not each.gamma)


def test_the_fastest_that_the_gate_admits_is_recommended_with_its_evidence(measured: dict[str, Any]) -> None:
    found = asked(measured | {"gate.json": gated(0.3), "act.json": gated(1.0, 0.5, rise=0.9)})
    chosen = found.recommended
    assert chosen is not None and chosen.keep == KV
    assert (chosen.speed.kind, chosen.speed.file, chosen.speed.commit) == ("measured", "crossing.json", "abc")
    assert "llama-3.1-8b at 131072 tokens, batch 1" in str(chosen.speed.cell)
    assert (chosen.quality.kind, chosen.quality.file) == ("measured", "gate.json")
    assert chosen.memory.kind == "account"
    dense = (hs.account(SHAPE, context=128 * K).step.total) / TB_PER_S / 1e9 + COSTS["dense"]
    assert found.dense.ms == pytest.approx(dense) and found.speed_up(chosen) == pytest.approx(
        dense / chosen.ms, abs=1e-3
    )


def test_a_larger_budget_never_makes_it_slower(measured: dict[str, Any]) -> None:
    gates = {
        f"{act}-{kv}.json": gated(kv, act, rise) for act, kv, rise in ((1, 0.3, 0.1), (0.5, 1, 0.8), (0.5, 0.3, 0.9))
    }
    chosen = [asked(measured | gates, quality=quality).recommended for quality in (0.0, 0.05, 0.1, 0.5, 0.9, 2.0)]
    assert [each.keep for each in chosen if each] == [DENSE, DENSE, KV, KV, BOTH, BOTH]


def test_without_a_gate_the_dense_model_is_recommended_and_the_commands_are_told(measured: dict[str, Any]) -> None:
    found = asked(measured)
    assert found.recommended is not None and found.recommended.keep == DENSE
    told = "\n".join(found.missing)
    assert (
        "30% of the cache would be faster" in told and "`headscope gate model=... keep_kv=0.3 context=131072`" in told
    )
    assert "`headscope sparsify model=... keep=0.5 out=thresholds.json`" in told
    assert "they pay above 47% accepted of the proposed" in told
    assert not any("headscope gate" in each for each in asked(measured, quality=0).missing)


@pytest.mark.parametrize(
    ("gate", "told"),
    [
        (gated(0.3, rise=0.7), "perplexity +0.700, every placement answered that the dense model answers"),
        (gated(0.3, test={"lost": ["passkey 0.05 0"]}), "perplexity +0.100, placements lost"),
        (gated(0.3, test={"right_dense": 0}), "perplexity +0.100, placements lost"),
        (gated(0.3, perplexity=None), "perplexity not measured, every placement answered"),
        (gated(0.3, context=K), "admitted, but on prompts of 1024 tokens alone"),
    ],
)
def test_what_is_not_shown_is_not_recommended(measured: dict[str, Any], gate: Any, told: str) -> None:
    found = asked(measured | {"gate.json": gate})
    assert found.recommended is not None and found.recommended.keep == DENSE
    assert told in option(found, KV).quality.what and not option(found, KV).admitted


def test_a_gate_of_another_model_counts_for_nothing(measured: dict[str, Any]) -> None:
    found = asked(measured | {"gate.json": gated(0.3, model={"id": "another"})})
    assert option(found, KV).quality.kind == "missing"


def test_the_longest_prompts_speak(measured: dict[str, Any]) -> None:
    gates = {"a.json": gated(0.3, context=K), "b.json": gated(0.3), "c.json": gated(0.3, context=2 * K)}
    assert option(asked(measured | gates), KV).quality.file == "b.json"


def test_a_quality_budget_speaks_too(measured: dict[str, Any]) -> None:
    budget = {
        "bench": "quality-budget", "model": {"id": SHAPE}, "protocol": {"context": 128 * K}, "commit": "abc",
        "budgets": [{"keep_act": 0.5, "keep_kv": 0.3, "rise": 0.4, "admitted": True}],
    }  # fmt: skip
    found = asked(measured | {"quality-budget.json": budget})
    assert found.recommended is not None and found.recommended.keep == BOTH


def test_what_was_not_measured_is_predicted_by_the_calibration(measured: dict[str, Any]) -> None:
    found = asked(measured, context=100 * K)
    kv = option(found, KV)
    assert kv.speed.kind == "predicted" and kv.speed.file == "calibration.json"
    count = found.account.step.total - 0.7 * found.account.step.kv
    assert kv.ms == pytest.approx(count / TB_PER_S / 1e9 + COSTS["kv"], rel=1e-4)


def test_another_shape_borrows_the_kernel_costs_by_its_layers(measured: dict[str, Any]) -> None:
    found = asked(measured, "llama-3.2-3b")
    expected = found.account.step.total / TB_PER_S / 1e9 + COSTS["dense"] * 28 / 32
    assert found.dense.ms == pytest.approx(expected, rel=1e-4)
    assert "kernel costs of llama-3.1-8b by the number of layers" in found.dense.speed.what


def test_a_config_of_another_name_with_the_same_layers_is_the_same_shape(
    measured: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(hs.accounting.load_config(SHAPE).to_dict()))
    assert asked(measured, str(path)).dense.speed.kind == "measured"


def test_without_a_calibration_it_is_a_bound_and_says_so(measured: dict[str, Any]) -> None:
    found = asked({})
    assert found.dense.speed.kind == "bound" and "datasheet's 4.8 TB/s; no kernel is so fast" in found.dense.speed.what
    assert found.dense.ms == pytest.approx(found.account.step.total / 4.8e9)
    assert "no calibration of NVIDIA H200: run `headscope bytes calibrate` on it" in found.missing


def test_bounds_stand_on_the_scale_of_a_dense_step_that_was_measured(measured: dict[str, Any]) -> None:
    """A bound beside a measurement would win by being a bound."""
    cells = [
        {"shape": SHAPE, "context": 128 * K, "batch": 1, "cache": "full", "attention": "sdpa", "ms_per_token": 8.5}
    ]
    cells += [{**cells[0], "attention": "transformers", "ms_per_token": 3.0}, {**cells[0], "batch": 8}]
    found = asked({"decode.json": {"bench": "decode", "hardware": H200, "commit": "abc", "cells": cells}})
    assert found.dense.ms == 8.5 and found.dense.speed.kind == "measured"
    assert option(found, KV).speed.kind == "bound"
    assert found.speed_up(option(found, KV)) == pytest.approx(1.5968, abs=1e-3)


def test_another_gpu_has_no_use_for_what_this_one_measured(measured: dict[str, Any]) -> None:
    results = Results(measured)
    account = hs.account(SHAPE, name=SHAPE, context=128 * K)
    found = plan(account, find_gpu("l40s", results.calibrations), results, quality=0.5)
    assert {each.speed.kind for each in found.options} == {"bound"} and found.recommended is not None


def test_what_does_not_fit_is_not_recommended(measured: dict[str, Any]) -> None:
    small = Gpu("small", 1.0, 25e9)
    account = hs.account(SHAPE, name=SHAPE, context=128 * K)
    found = plan(account, small, Results({"gate.json": gated(0.3)}), quality=0.5)
    assert not found.dense.fits and found.recommended is not None and found.recommended.keep == KV
    assert plan(account, Gpu("tiny", 1.0, 1e9), Results({}), quality=0.5).recommended is None


def test_in_a_batch_sparse_activations_are_left_out(measured: dict[str, Any]) -> None:
    found = asked(measured, batch=4)
    assert all(each.keep.act == 1 for each in found.options)
    assert any("kernels serve one sequence at a time" in each for each in found.missing)
    assert "kernel costs of batch 1" in found.dense.speed.what


def test_speculation_is_lossless_and_needs_an_acceptance(measured: dict[str, Any]) -> None:
    found = asked(measured, quality=0, acceptance=0.9)
    chosen = found.recommended
    assert chosen is not None and chosen.gamma >= 1 and chosen.lossless and chosen.ms < found.dense.ms
    assert chosen.speed.kind == "predicted" and "at an acceptance of 0.9" in chosen.quality.what
    assert chosen.memory_bytes > found.dense.memory_bytes
    bound = asked({}, quality=0, acceptance=0.9).recommended
    assert bound is not None and bound.gamma >= 1 and bound.speed.kind == "bound"
    poor = asked(measured, acceptance=0.1)
    assert not any(each.gamma for each in poor.options)
    assert "speculation does not pay at an acceptance of 0.1, so it is left out" in poor.missing


def test_speculation_takes_steps_that_were_measured(measured: dict[str, Any]) -> None:
    row = {"batch": 1, "context": 128 * K, "dense_ms": 8.0, "even_ms": 4.0, "verify_ms": {"1": 8.4, "3": 9.0}}
    bench = {"bench": "speculate", "hardware": H200, "shape": SHAPE, "kept": K, "commit": "abc", "cells": [row]}
    found = asked(measured | {"speculate.json": bench}, quality=0, acceptance=0.9)
    chosen = found.recommended
    assert chosen is not None and chosen.speed.file == "speculate.json"
    speed = {
        gamma: sum(0.9**at for at in range(gamma + 1)) * 8 / (4 * gamma + ms) for gamma, ms in ((1, 8.4), (3, 9.0))
    }
    assert chosen.gamma == max(speed, key=speed.__getitem__) and chosen.ms == pytest.approx(8 / max(speed.values()))


def test_a_quality_that_is_no_rise_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="`quality` must be a rise of perplexity, at least 0, got -1"):
        asked({}, quality=-1)


def test_a_gpu_of_which_nothing_is_known_is_a_mistake() -> None:
    account = hs.account(SHAPE)
    with pytest.raises(ValueError, match="`gpu` new is in no table and its calibration has no such steps"):
        plan(account, Gpu("new", None, None), Results({}), quality=0.5)


def test_results_are_read_from_folders_the_first_first(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "gate.json").write_text(json.dumps(gated(0.3, rise=0.1 if name == "a" else 0.2)))
    (tmp_path / "b" / "broken.json").write_text("{")
    (tmp_path / "b" / "list.json").write_text("[]")
    found = Results.read([tmp_path / "none", tmp_path / "a", tmp_path / "b"])
    assert set(found.documents) == {"gate.json"} and [each.rise for each in found.judgements()] == [0.1]
