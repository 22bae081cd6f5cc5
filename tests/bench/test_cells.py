"""Cells: real steps on tiny models keep what they are asked to keep, with every attention."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from headscope.accounting.cell import Cell
from headscope.bench import cells
from headscope.bench.activations import WatchedStep, choose_thresholds, kept_shares, sparse_weights
from headscope.bench.attentions import ATTENTIONS
from headscope.bench.cells import Task
from headscope.bench.shapes import drawn_model, shape_config
from headscope.bench.step import Rig
from headscope.bench.timer import copy_rate, plain_ms, timer_of
from headscope.cache.segments import Segments
from headscope.fused import FusedStep, fuse
from headscope.fused.stack import Layer
from tests.bench.stand_in import byte_clock, tiny

CPU = torch.device("cpu")


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig.of(drawn_model(shape_config(tiny(tmp_path / "tiny")), CPU, torch.float32))


def logits(step: FusedStep, layers: list[Segments], context: int) -> torch.Tensor:
    return step(torch.ones(1, 1, dtype=torch.int64), torch.tensor([[context]]), layers)


def test_a_drawn_model_is_a_model(tmp_path: Path) -> None:
    """Its rotary frequencies are those of its config, its norms 1, and its logits the model's own."""
    config = shape_config(tiny(tmp_path / "tiny"), layers=1)
    model = drawn_model(config, CPU, torch.float32)
    expected = 1 / (10000.0 ** (torch.arange(0, 8, 2) / 8))
    torch.testing.assert_close(model.model.rotary_emb.inv_freq, expected)
    assert len(model.model.layers) == 1 and bool((model.model.norm.weight == 1).all())
    step, ids = fuse(model), torch.tensor([[3]])
    assert step is not None
    empty = Rig.of(model).dense(1, 0)
    torch.testing.assert_close(step(ids, torch.zeros_like(ids), empty), model(ids).logits, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("keep", [0.25, 0.5, 0.75])
def test_thresholds_keep_exactly_what_is_asked_of_the_steps_own_activations(rig: Rig, keep: float) -> None:
    layers = rig.dense(1, 40)
    with sparse_weights(rig.model) as stack:
        step = FusedStep(choose_thresholds(FusedStep(stack), layers, 40, keep))
        shares = kept_shares(step, layers, 40)
    assert set(shares) >= {"q_proj", "o_proj", "gate_proj", "down_proj"}
    assert all(share == pytest.approx(keep, abs=0.005) for share in shares.values())
    assert int(layers[0].lengths.max()) == 40 and layers[0].room == rig.room


def test_a_watched_step_is_the_step(rig: Rig) -> None:
    seen: list[tuple[str, ...]] = []

    def look(layer: Layer, names: tuple[str, ...], x: torch.Tensor) -> Layer:
        seen.append(names)
        return layer

    watched = WatchedStep(rig.step.stack, rig.step.attend, look)
    torch.testing.assert_close(logits(watched, rig.dense(1, 24), 24), logits(rig.step, rig.dense(1, 24), 24))
    assert seen == 2 * [("q", "k", "v"), ("o",), ("gate", "up"), ("down",)]


def test_a_step_that_leaves_out_nothing_is_the_dense_step(rig: Rig) -> None:
    dense = logits(rig.step, rig.dense(1, 24), 24)
    with sparse_weights(rig.model) as stack:
        torch.testing.assert_close(logits(FusedStep(stack), rig.dense(1, 24), 24), dense)
        half = FusedStep(choose_thresholds(FusedStep(stack), rig.dense(1, 24), 24, 0.5))
        assert not torch.allclose(logits(half, rig.dense(1, 24), 24), dense, rtol=1e-2)
    torch.testing.assert_close(logits(rig.step, rig.dense(1, 24), 24), dense)


@pytest.mark.parametrize("name", ["split", "sdpa", "masked"])
def test_every_attention_gives_the_same_step(rig: Rig, name: str) -> None:
    """The memory-efficient one and FlashAttention-3 are for GPUs alone."""
    expected = logits(rig.step, rig.dense(1, 33), 33)
    found = logits(replace(rig.step, attend=ATTENTIONS[name]), rig.dense(1, 33), 33)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_a_task_times_its_cells_round_after_round(tmp_path: Path) -> None:
    shape = tiny(tmp_path / "tiny")
    asked = [Cell(shape, 64, act, kv, dtype="float32") for act, kv in ((1, 1), (1, 0.25), (0.5, 1), (0.5, 0.25))]
    rows = cells.run(Task(shape, tuple(asked), "cpu", repeats=1, rounds=2), byte_clock)
    assert [row["branch"] for row in rows[:4]] == ["dense", "kv", "projection", "both"]
    assert [row["branch"] for row in rows[4:]] == ["both", "projection", "kv", "dense"]
    dense, kv, projection, both = rows[:4]
    one = 2 * 2 * 2 * 8 * 4  # layers, keys and values, KV heads, dim, bytes
    assert (dense["ms_per_token"] - kv["ms_per_token"]) * 1e6 == pytest.approx(48 * one, abs=20)
    assert dense["bytes"] - kv["bytes"] == 48 * one and dense["bytes"] > projection["bytes"] > both["bytes"]
    assert "kept" not in dense and projection["kept"]["of_bytes"] == pytest.approx(0.5, abs=0.05)


def test_what_cannot_be_timed_says_why(tmp_path: Path) -> None:
    shape = tiny(tmp_path / "tiny")
    (row,) = cells.run(Task(shape, (Cell(shape, 8, 0.5, batch=2, dtype="float32"),), "cpu"), byte_clock)
    assert row["failed"] == "sparse projections serve one row"
    (row,) = cells.run(Task(shape, (Cell(shape, 8, dtype="float32"),), "cpu", attention="fused"), plain_ms)
    assert "failed" in row and "ms_per_token" not in row and "bytes" not in row


def test_more_repeats_than_there_is_room_for_are_refused(tmp_path: Path) -> None:
    shape = tiny(tmp_path / "tiny")
    with pytest.raises(ValueError, match="`repeats` must be a whole number from 1 to 56, got 57"):
        cells.run(Task(shape, (Cell(shape, 8, dtype="float32"),), "cpu", repeats=57), byte_clock)


def test_tied_tables_stay_tied(tmp_path: Path) -> None:
    config = shape_config(tiny(tmp_path / "tiny"))
    config.tie_word_embeddings = True
    model = drawn_model(config, CPU, torch.float32)
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_a_processors_own_clock(rig: Rig) -> None:
    assert timer_of(CPU) is plain_ms and copy_rate(CPU) > 1e-4
    median, spread = plain_ms(rig, rig.dense(1, 16), 16, repeats=3)
    assert median > 0 and spread >= 0
