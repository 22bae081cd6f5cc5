"""Cells on a rig: decode steps that read a part of the activations and of the cache, timed one after another."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from headscope.accounting import account
from headscope.accounting.cell import Cell
from headscope.accounting.ledger import Account
from headscope.accounting.step import step_bytes
from headscope.bench.activations import choose_thresholds, kept_shares, sparse_weights
from headscope.bench.attentions import ATTENTIONS
from headscope.bench.shapes import drawn_model, shape_config
from headscope.bench.step import ROOM, Rig
from headscope.bench.timer import Timer, timer_of
from headscope.fused import FusedStep, Stack

Row = dict[str, Any]
MOST_REPEATS = ROOM - 8  # a replay appends a token, and so does what warms up
SPARE_BYTES = 3 * 2**30  # for activations and graphs


@dataclass(frozen=True)
class Task:
    """What one process times. shape: a config's name or path. layers: fewer than it has, for a try.

    cells: in their order. attention: one of `attentions.ATTENTIONS`. repeats: of each step. rounds: of all cells, every
    second one in the other order.
    """

    shape: str
    cells: tuple[Cell, ...]
    device: str
    layers: int | None = None
    attention: str = "split"
    repeats: int = 15
    rounds: int = 1


def account_of(shape: str, layers: int | None, dtype: str) -> Account:
    """Account for a shape as its cells are timed."""
    return account(shape_config(shape, layers), name=shape, dtype=dtype)


def run(task: Task, timer: Timer | None = None) -> list[Row]:
    """Build the shape's model with random weights and time the task's cells."""
    if not 1 <= task.repeats <= MOST_REPEATS:
        raise ValueError(f"`repeats` must be a whole number from 1 to {MOST_REPEATS}, got {task.repeats}")
    device = torch.device(task.device)
    model = drawn_model(shape_config(task.shape, task.layers), device, getattr(torch, task.cells[0].dtype))
    found = account_of(task.shape, task.layers, task.cells[0].dtype)
    return [_rated(row, found) for row in timed(Rig.of(model), task, timer or timer_of(device))]


def _rated(row: Row, found: Account) -> Row:
    """Add what the account says that a step reads, and how fast that is."""
    if "ms_per_token" not in row:
        return row
    keeps = {name: row[name] for name in ("batch", "keep_act", "keep_kv")}
    total = step_bytes(found.shape, found.precision, row["context"], **keeps).total
    return row | {"bytes": round(total), "tb_per_s": round(total / row["ms_per_token"] / 1e9, 4)}


def timed(rig: Rig, task: Task, timer: Timer) -> Iterator[Row]:
    """Time the cells in their order; neighbours with sparse activations share the storing of weights."""
    for round_ in range(task.rounds):
        order = reversed(task.cells) if round_ % 2 else task.cells
        for sparse, cells in itertools.groupby(order, key=lambda cell: cell.keep_act < 1):
            with sparse_weights(rig.model) if sparse else nullcontext(rig.step.stack) as stack:
                for cell in cells:
                    yield asdict(cell) | {"branch": cell.branch, "round": round_} | _time(rig, stack, cell, task, timer)


def _time(rig: Rig, stack: Stack, cell: Cell, task: Task, timer: Timer) -> Row:
    if cell.keep_act < 1 and cell.batch > 1:
        return {"failed": "sparse projections serve one row"}
    if not fits(rig, cell):
        return {"failed": "does not fit in the memory"}
    if rig.step.stack.embedding.is_cuda:
        torch.cuda.empty_cache()  # small caches in what a large one has left were slower
    attend = ATTENTIONS[task.attention]
    layers = rig.dense(cell.batch, cell.tokens)
    step = FusedStep(stack, attend)
    if cell.keep_act < 1:
        step = FusedStep(choose_thresholds(step, layers, cell.context, cell.keep_act), attend)
    try:
        median, spread = timer(replace(rig, step=step), layers, cell.context, attend, task.repeats)
    except Exception as error:  # a shape that an attention does not take
        return {"attention": task.attention, "failed": f"{type(error).__name__}: {error}"[:200]}
    row: Row = {"attention": task.attention, "ms_per_token": round(median, 5), "spread_ms": round(spread, 5)}
    if cell.keep_act < 1:
        row["kept"] = kept_shares(step, layers, cell.context)
    return row


def fits(rig: Rig, cell: Cell) -> bool:
    """Tell whether a cell's cache fits beside the model, with what an attention may copy of a layer."""
    if (device := rig.step.stack.embedding.device).type != "cuda":
        return True
    asked = cell.batch * cell.tokens * rig.token_bytes + SPARE_BYTES
    held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return asked < torch.cuda.mem_get_info(device)[0] + held
