"""Sparse projections on a GPU: against their reference, then beside the dense ones on the layers of 7B models.

Runs as ``python -m headscope.bench.sparse_linear out.json [commit [sections]]``, sections by comma. Each prints its
results as JSON lines; one that fails says so, and the others run on.
"""

from __future__ import annotations

import itertools
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
from headscope.bench.sparse_tuning import SPLITS, WHOLES, layer_us, tune, tune_dense
from headscope.bench.stack import GROUPS, LAYERS, SHAPES, Stack, Tuning, own, pytorch
from headscope.files import write_atomically
from headscope.kernels.norm import Norm, sum_squares
from headscope.kernels.sparse_linear import (
    Call,
    channel_major,
    gate_up_reference,
    project_reference,
    sparse_gate_up,
    tuning,
)

DEADLINE_S = 100  # tuning stops here
KEEPS = (0.3, 0.4, 0.5, 0.6, 0.7)
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
DENSE_WAYS = {"pytorch": pytorch, "own": own}
Rows = Iterator[dict[str, Any]]


SIZES = [(3584, (3584, 512, 512)), (150, (40, 24)), (1000, (130,)), (96, (7,))]  # inputs, outputs of each weight
WAYS: list[Tuning | None] = [None, SPLITS[0], SPLITS[-1], WHOLES[0], WHOLES[-1]]


def check(_: Stack) -> Rows:
    """Compare each kernel with its reference in fp64, and its error with the reference's in the same dtype."""
    for dtype, (inputs, counts), tuned in itertools.product(DTYPES, SIZES, WAYS):
        torch.manual_seed(inputs)
        x = torch.randn(1, inputs, device=DEVICE, dtype=dtype)
        weights = [channel_major(torch.randn(count, inputs, device=DEVICE, dtype=dtype)) for count in counts]
        biases = [torch.randn(count, device=DEVICE, dtype=dtype) for count in counts]
        thresholds = torch.rand(len(counts)).tolist()
        call = Call("project", x, weights, biases, thresholds)
        found, again = call.run(tuned)[0], call.run(tuned)[0]
        honest = project_reference(x, weights, biases, thresholds)
        wide, wide_biases = ([each.double() for each in group] for group in (weights, biases))
        exact = project_reference(x.double(), wide, wide_biases, thresholds)
        error, pytorch_error = (float((each.double() - exact).norm() / exact.norm()) for each in (found, honest))
        ok = error <= 2 * pytorch_error + 1e-6 and torch.equal(found, again)
        row = {"dtype": str(dtype)[6:], "shape": [inputs, *counts], "tuning": str(tuned)}
        yield row | {"error": error, "pytorch_error": pytorch_error, "ok": ok}


def check_graph(_: Stack) -> Rows:
    """Replay one CUDA graph with other inputs, the host never waited for."""
    x = torch.randn(1, 3584, device=DEVICE, dtype=torch.bfloat16)
    gate, up = (channel_major(torch.randn(4096, 3584, device=DEVICE, dtype=torch.bfloat16)) for _ in "gu")
    norm = Norm(torch.rand(3584, device=DEVICE, dtype=torch.bfloat16), sum_squares(x), 1e-6)
    inputs = x, gate, up, (None, None), (0.3, 0.6), norm
    sparse_gate_up(*inputs)
    torch.cuda.set_sync_debug_mode("error")
    try:
        sparse_gate_up(*inputs)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph, output = captured(lambda: sparse_gate_up(*inputs))
    for seed in range(3):
        torch.manual_seed(seed)
        x.normal_()
        norm.squares.copy_(sum_squares(x))
        graph.replay()
        expected = gate_up_reference(*inputs).float()
        error = float((output.float() - expected).norm() / expected.norm())
        yield {"seed": seed, "error": error, "ok": error < 2e-2}


def speed(stack: Stack) -> Rows:
    """Time the layers' projections at each keep ratio beside the fastest dense way, all in CUDA graphs."""
    dense = {name: layer_us(stack.dense_work(how)) for name, how in DENSE_WAYS.items()}
    fastest, size = min(dense.values()), stack.shape.layer_bytes()
    row = {"layers": LAYERS, "layer_mb": round(size / 1e6, 1), "dense_us": dense}
    yield row | {"tb_per_s": round(size / fastest / 1e6, 3)}
    for keep in KEEPS:
        sparse = layer_us(stack.sparse_work(keep))
        times = {"of_dense": round(fastest / sparse, 3), "of_pytorch": round(dense["pytorch"] / sparse, 3)}
        yield {"keep": keep, "us": sparse, **times, "tb_per_s": round(size * keep / sparse / 1e6, 3)}
    for group in GROUPS:
        times = {name: layer_us(stack.dense_work(how, (group,))) for name, how in DENSE_WAYS.items()}
        inputs, outputs = stack.shape.groups[group]
        tuned = {group: tuning(inputs, sum(outputs))}
        at_keep = {str(keep): layer_us(stack.sparse_work(keep, tuned)) for keep in KEEPS}
        yield {"group": group, "dense_us": times, "us_at_keep": at_keep}


def run(out: Path, commit: str | None = None, only: str | None = None) -> dict[str, Any]:
    """Run every section on every shape and write what it gave, after each section anew."""
    if not torch.cuda.is_available():
        raise ValueError("sparse projections are measured on a GPU, and PyTorch sees none here; run on a CUDA machine")
    began = time.monotonic()
    copy = round(copy_rate(), 3)
    results: dict[str, Any] = {"bench": "sparse-linear", **provenance(DEVICE, commit), "copy_tb_per_s": copy}
    print(json.dumps(results), flush=True)
    for shape in SHAPES:
        stack = Stack.make(shape)
        until = began + DEADLINE_S * (SHAPES.index(shape) + 1) / len(SHAPES)
        sections: dict[str, Callable[[Stack], Rows]] = {
            "check": check,
            "check_graph": check_graph,
            "speed": speed,
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
