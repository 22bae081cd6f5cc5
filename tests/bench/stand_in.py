"""Stand-ins for a GPU: a machine whose steps take their bytes' time and a known cost, and a clock for real steps."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headscope.accounting.cell import Cell
from headscope.accounting.step import step_bytes
from headscope.bench import cells
from headscope.bench.cells import Task, account_of
from headscope.bench.step import Rig, kv_bytes

TB_PER_S = 4.0
COPY = 4.2
COSTS = {"dense": 0.25, "kv": 0.3, "projection": 0.7, "both": 0.75}  # ms
SHARES = {"split": 1.0, "sdpa": 0.98, "fused": 0.2, "masked": 0.08}  # of the bandwidth, at which attention reads
Tiny = dict[str, int]
TINY = {
    "model_type": "llama", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "torch_dtype": "float32",
}  # fmt: skip


def tiny(folder: Path) -> str:
    """Write the config of a tiny shape, and name it."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(TINY))
    return str(folder)


def machine(wobble: Callable[[Cell, str], float] = lambda cell, attention: 0.0) -> Callable[..., Any]:
    """Stand for processes that time steps. wobble: ms on top of a cell's time."""
    seen: dict[str, list[Task]] = {"tasks": []}

    def process(work: Callable[..., Any], argument: Any) -> Any:
        if work is not cells.run:
            return COPY
        seen["tasks"].append(argument)
        return [_row(cell, argument, wobble) for _ in range(argument.rounds) for cell in argument.cells]

    process.tasks = seen["tasks"]  # type: ignore[attr-defined]
    return process


def _row(cell: Cell, task: Task, wobble: Callable[[Cell, str], float]) -> dict[str, Any]:
    row = asdict(cell) | {"branch": cell.branch, "round": 0, "attention": task.attention}
    if task.attention not in SHARES:
        return row | {"failed": "ModuleNotFoundError: not here"}
    account = account_of(task.shape, task.layers, cell.dtype)
    step = step_bytes(account.shape, account.precision, cell.context, keep_act=cell.keep_act, keep_kv=cell.keep_kv)
    ms = (step.weights + step.kv / SHARES[task.attention]) / TB_PER_S / 1e9 + COSTS[cell.branch]
    ms += wobble(cell, task.attention)
    return row | {"ms_per_token": ms, "spread_ms": 0.0, "bytes": step.total, "tb_per_s": step.total / ms / 1e9}


def byte_clock(rig: Rig, layers: Any, context: int, attention: Any = None, repeats: int = 15) -> tuple[float, float]:
    """Run a real step, and give the time that its weights and caches take at 1 MB a ms instead of its own."""
    from headscope.bench.timer import plain_ms

    read = kv_bytes(layers) + rig.step.stack.weight_bytes
    plain_ms(rig, layers, context, attention, 1)
    return read / 1e6, 0.0
