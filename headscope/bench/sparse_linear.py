"""Sparse projections on a GPU: against their reference, then beside the dense ones on the layers of 7B models.

Runs as ``python -m headscope.bench.sparse_linear out.json [commit]``. Every section prints its results as JSON lines;
one that fails says so, and the others run on.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from headscope.bench.clock import DEVICE, captured, copy_rate
from headscope.bench.provenance import provenance
from headscope.bench.sparse_tuning import layer_us, tune, tune_dense
from headscope.bench.stack import GROUPS, LAYERS, SHAPES, Stack, own, pytorch
from headscope.files import write_atomically
from headscope.kernels import sparse_linear
from headscope.kernels.linear import Norm, sum_squares

DEADLINE_S = 100  # tuning stops here
KEEPS = (0.3, 0.4, 0.5, 0.6, 0.7)
Rows = Iterator[dict[str, Any]]


def check(_: Stack) -> Rows:
    """Compare each operation with its reference in fp64, and its error with the reference's in the same dtype."""
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        for rows, inputs, counts in (
            (1, 3584, (3584, 512, 512)),
            (1, 150, (40, 24)),
            (4, 1000, (130,)),
            (3, 96, (7,)),
        ):
            torch.manual_seed(rows)
            x = torch.randn(rows, inputs, device=DEVICE, dtype=dtype)
            weights = [
                sparse_linear.channel_major(torch.randn(count, inputs, device=DEVICE, dtype=dtype)) for count in counts
            ]
            biases = [torch.randn(count, device=DEVICE, dtype=dtype) for count in counts]
            thresholds = torch.rand(len(counts), device=DEVICE)
            found = sparse_linear.sparse_project(x, weights, biases, thresholds)
            again = sparse_linear.sparse_project(x, weights, biases, thresholds)
            honest = sparse_linear.project_reference(x, weights, biases, thresholds)
            exact = sparse_linear.project_reference(
                x.double(), [each.double() for each in weights], [each.double() for each in biases], thresholds
            )
            error, pytorch_error = (float((each.double() - exact).norm() / exact.norm()) for each in (found, honest))
            ok = error <= 2 * pytorch_error + 1e-6 and torch.equal(found, again)
            yield {
                "dtype": str(dtype)[6:],
                "shape": [rows, inputs, *counts],
                "error": error,
                "pytorch": pytorch_error,
                "ok": ok,
            }


def check_graph(_: Stack) -> Rows:
    """Replay one CUDA graph with other inputs and thresholds, the host never waited for."""
    x = torch.randn(1, 3584, device=DEVICE, dtype=torch.bfloat16)
    weights = [sparse_linear.channel_major(torch.randn(4096, 3584, device=DEVICE, dtype=torch.bfloat16)) for _ in "gu"]
    norm = Norm(torch.rand(3584, device=DEVICE, dtype=torch.bfloat16), sum_squares(x), 1e-6)
    thresholds = torch.rand(2, device=DEVICE)
    inputs = x, weights[0], weights[1], (None, None), thresholds, norm
    sparse_linear.sparse_gate_up(*inputs)
    torch.cuda.set_sync_debug_mode("error")
    try:
        sparse_linear.sparse_gate_up(*inputs)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph, output = captured(lambda: sparse_linear.sparse_gate_up(*inputs))
    for seed in range(3):
        torch.manual_seed(seed)
        x.normal_()
        norm.squares.copy_(sum_squares(x))
        thresholds.copy_(torch.rand(2))
        graph.replay()
        expected = sparse_linear.gate_up_reference(*inputs).float()
        error = float((output.float() - expected).norm() / expected.norm())
        yield {"seed": seed, "error": error, "ok": error < 1e-2}


def speed(stack: Stack) -> Rows:
    """Time the layers' projections at each keep ratio beside the fastest dense way, all in CUDA graphs."""
    ways = {"pytorch": pytorch, "own": own}
    dense = {name: layer_us(stack.dense_work(how)) for name, how in ways.items()}
    fastest = min(dense.values())
    size = stack.shape.layer_bytes()
    yield {
        "layers": LAYERS,
        "layer_mb": round(size / 1e6, 1),
        "dense_us": dense,
        "tb_per_s": round(size / fastest / 1e6, 3),
    }
    for keep in KEEPS:
        sparse = layer_us(stack.sparse_work(keep))
        yield {
            "keep": keep,
            "us": sparse,
            "of_dense": round(fastest / sparse, 3),
            "tb_per_s": round(size * keep / sparse / 1e6, 3),
        }
    for group in GROUPS:
        times = {name: layer_us(stack.dense_work(how, (group,))) for name, how in ways.items()}
        tuned = {group: sparse_linear.tuning(1, stack.shape.groups[group][0], sum(stack.shape.groups[group][1]))}
        yield {"group": group, "dense_us": times} | {
            f"us_at_{keep}": layer_us(stack.sparse_work(keep, tuned)) for keep in KEEPS
        }


def speed_rows(stack: Stack) -> Rows:
    """Time several rows at a keep of 0.5, where a union of their active inputs is read."""
    for rows in (2, 3, 4):
        several = Stack(stack.shape, stack.dense, stack.sparse, Stack.draw(stack.shape, rows))
        dense = {name: layer_us(several.dense_work(how)) for name, how in {"pytorch": pytorch, "own": own}.items()}
        sparse = layer_us(several.sparse_work(0.5))
        yield {"rows": rows, "dense_us": dense, "us": sparse, "of_dense": round(min(dense.values()) / sparse, 3)}


def run(out: Path, commit: str | None = None, only: str | None = None) -> dict[str, Any]:
    """Run every section on every shape and write what it gave, after each section anew."""
    if not torch.cuda.is_available():
        raise ValueError("sparse projections are measured on a GPU, and PyTorch sees none here; run on a CUDA machine")
    began = time.monotonic()
    copy = round(copy_rate(), 3)
    results: dict[str, Any] = {"bench": "sparse_linear", **provenance(DEVICE, commit), "copy_tb_per_s": copy}
    print(json.dumps(results), flush=True)
    for shape in SHAPES:
        stack = Stack.make(shape)
        until = began + DEADLINE_S * (SHAPES.index(shape) + 1) / len(SHAPES)
        sections: dict[str, Callable[[Stack], Rows]] = {
            "check": check,
            "check_graph": check_graph,
            "speed": speed,
            "speed_rows": speed_rows,
            "dense": tune_dense,
            "tune": partial(tune, keep=0.5, until=until),
        }
        for name, section in sections.items():
            if only and name not in only.split(","):
                continue
            own_results = results.setdefault(f"{shape.name} {name}", [])
            try:
                for row in section(stack):
                    own_results.append(row)
                    print(json.dumps({"section": f"{shape.name} {name}", **row}), flush=True)
            except Exception as error:
                own_results.append({"failed": f"{type(error).__name__}: {error}"[:400]})
                print(json.dumps({"section": name, **own_results[-1]}), flush=True)
            write_atomically(out, json.dumps(results, indent=1) + "\n")
            print(json.dumps({"section": name, "seconds": round(time.monotonic() - began, 1)}), flush=True)
        del stack
        torch.cuda.empty_cache()
    return results


if __name__ == "__main__":
    run(Path(sys.argv[1]), *sys.argv[2:4])
