"""Projections of a few rows on a GPU: against their references, against cuBLAS, and which tuning is fastest.

Runs as ``headscope bench linear`` or ``python -m headscope.bench.linear OUT [COMMIT [SECTION ...]]``.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import linear

from headscope.bench.checks import check_sections
from headscope.bench.clock import DEVICE, copy_rate, graph_ms
from headscope.bench.provenance import provenance
from headscope.files import write_atomically
from headscope.kernels.linear import add_project_reference, gate_up_reference, launch, project_reference
from headscope.kernels.linear_tuning import Tuning, tuning
from headscope.kernels.norm import Norm, normed, sum_squares

Rows = Iterator[dict[str, Any]]
LAYERS = 8  # taken in turn, so that no weight is still in the L2 cache
DEADLINE_S = 240
SHAPES = {  # width, query width, KV width, feed-forward width
    "qwen2-vl-7b": (3584, 3584, 512, 18944),
    "vicuna-7b": (4096, 4096, 4096, 11008),
    "llama-3.1-8b": (4096, 4096, 1024, 14336),
}
ROWS = (1, 8, 16, 32)


class Case:
    """One kind of projection of some layers of a shape."""

    def __init__(self, kind: str, shape: tuple[int, int, int, int], rows: int, layers: int = LAYERS) -> None:
        width, queries, keys, wide = shape
        inputs, outputs = {
            "project": (width, [queries, keys, keys]),
            "gate_up": (width, [wide, wide]),
            "add": (wide, [width]),
            "output": (queries, [width]),
        }[kind]
        torch.manual_seed(0)
        self.kind = "add" if kind == "output" else kind
        self.x = torch.randn(rows, inputs, device=DEVICE, dtype=torch.bfloat16)
        self.layers = [
            [torch.randn(count, inputs, device=DEVICE, dtype=torch.bfloat16) / inputs**0.5 for count in outputs]
            for _ in range(layers)
        ]
        gain = torch.rand(inputs, device=DEVICE).to(torch.bfloat16)
        self.norm = Norm(gain, sum_squares(self.x), 1e-6) if self.kind != "add" else None
        self.residual = torch.randn(rows, outputs[0], device=DEVICE, dtype=torch.bfloat16)
        self.weight_bytes = sum(weight.nbytes for weights in self.layers for weight in weights)

    def ours(self, tuned: Tuning | None = None) -> None:
        for weights in self.layers:
            self.one(weights, self.x, self.residual, tuned)

    def one(self, weights: list[torch.Tensor], x: Any, residual: Any, tuned: Tuning | None = None) -> torch.Tensor:
        onto = residual if self.kind == "add" else None
        return launch(self.kind, x, weights, [None] * len(weights), self.norm, onto, tuned)[0]

    def reference(self, weights: list[torch.Tensor], x: Any, residual: Any, norm: Norm | None) -> torch.Tensor:
        if self.kind == "project":
            return project_reference(x, weights, [None] * 3, norm)
        if self.kind == "gate_up":
            return gate_up_reference(x, weights[0], weights[1], [None] * 2, norm)
        add_project_reference(x, weights[0], None, residual)
        return residual

    def cublas(self) -> None:
        """Only the products, each weight by itself: no norm, no residual."""
        x = normed(self.x, self.norm)
        for weights in self.layers:
            for weight in weights:
                linear(x, weight)

    def exact(self) -> dict[str, Any]:
        weights, norm = self.layers[0], self.norm
        wide = norm and Norm(norm.gain.float(), norm.squares, norm.eps)
        expected = self.reference([w.float() for w in weights], self.x.float(), self.residual.float(), wide)
        found = self.one(weights, self.x, self.residual.clone())
        same = self.reference(weights, self.x, self.residual.clone(), norm)
        error, honest = (float((each.float() - expected).norm() / expected.norm()) for each in (found, same))
        again = self.one(weights, self.x, self.residual.clone())
        return {"error": error, "pytorch_error": honest, "ok": error <= 2 * honest and torch.equal(found, again)}


def kinds() -> tuple[str, ...]:
    return "project", "output", "gate_up", "add"


def check(_: float) -> Rows:
    """Compare the kernel with fp32, and its error with PyTorch's own in bf16."""
    for (name, shape), kind, rows in itertools.product(SHAPES.items(), kinds(), (1, 2, 8, 17, 32)):
        yield {"shape": name, "kind": kind, "rows": rows, **Case(kind, shape, rows, 1).exact()}


def measure(copy: float) -> Rows:
    """Time the shipped tuning against cuBLAS, eight layers in turn."""
    for (name, shape), rows in itertools.product(SHAPES.items(), ROWS):
        total = {"us": 0.0, "cublas_us": 0.0, "bytes": 0}
        for kind in kinds():
            case = Case(kind, shape, rows)
            ours, theirs = graph_ms(case.ours, 15), graph_ms(case.cublas, 15)
            total["us"] += ours * 1e3 / LAYERS
            total["cublas_us"] += theirs * 1e3 / LAYERS
            total["bytes"] += case.weight_bytes // LAYERS
            yield {"shape": name, "kind": kind, "rows": rows, **_speeds(case.weight_bytes, ours, theirs, copy)}
        whole = _speeds(total["bytes"], total["us"] / 1e3, total["cublas_us"] / 1e3, copy)
        yield {"shape": name, "kind": "layer", "rows": rows, **whole}


def _speeds(weight_bytes: float, ours: float, theirs: float, copy: float) -> dict[str, Any]:
    return {
        "tb_per_s": round(weight_bytes / ours / 1e9, 3),
        "of_copy": round(weight_bytes / ours / 1e9 / copy, 3),
        "cublas_of_copy": round(weight_bytes / theirs / 1e9 / copy, 3),
    }


VECTORS = [
    Tuning(out, inputs, warps, stages, programs)
    for out, inputs, warps, stages, programs in [
        (4, 512, 4, 1, 4), (4, 512, 4, 1, 8), (8, 512, 4, 1, 4), (4, 512, 4, 3, 4), (4, 512, 2, 3, 4),
        (2, 1024, 4, 1, 4),
        (8, 512, 4, 3, 4), (8, 512, 4, 3, 8), (16, 256, 4, 3, 4), (16, 256, 4, 4, 4), (4, 1024, 4, 1, 4),
        (8, 256, 4, 3, 4),
    ]
]  # fmt: skip
MATRICES = [
    Tuning(out, inputs, warps, stages, programs)
    for out, inputs, warps, stages, programs in [
        (32, 128, 2, 4, 2), (32, 128, 2, 4, 3), (32, 128, 2, 5, 3), (32, 256, 4, 3, 2), (16, 128, 2, 5, 3),
        (64, 128, 4, 3, 2),
        (32, 64, 2, 6, 3), (64, 64, 4, 5, 2), (32, 128, 4, 4, 3),
    ]
]  # fmt: skip
WIDE = [
    Tuning(out, inputs, warps, stages, programs)
    for out, inputs, warps, stages, programs in [
        (64, 64, 4, 4, 2), (64, 128, 4, 3, 2), (128, 64, 4, 4, 1), (128, 64, 8, 4, 1), (64, 64, 4, 5, 3),
        (128, 128, 8, 3, 1),
        (32, 128, 4, 4, 3), (64, 64, 8, 4, 2), (128, 32, 4, 5, 2),
    ]
]  # fmt: skip


def tune(copy: float, until: float, shape: str = "qwen2-vl-7b") -> Rows:
    """Time other tunings than the one shipped, and give the best of each kind, until a moment."""
    for rows, kind in itertools.product((1, 8, 32, 80), kinds()):
        case, found = Case(kind, SHAPES[shape], rows), []
        for tuned in VECTORS if rows == 1 else MATRICES if rows <= 32 else WIDE:
            if time.monotonic() > until:
                break
            try:
                found.append((graph_ms(partial(case.ours, tuned), 9), tuned))
            except Exception as error:  # too much shared memory, say
                yield {"rows": rows, "kind": kind, "tuning": astuple(tuned), "failed": repr(error)[:120]}
        found.sort(key=lambda each: each[0])
        best = [[astuple(tuned), round(case.weight_bytes / ms / 1e9 / copy, 3)] for ms, tuned in found[:8]]
        yield {
            "rows": rows,
            "kind": kind,
            "shipped": astuple(tuning(rows, case.kind, case.weight_bytes // LAYERS)),
            "tried": len(found),
            "best": best,
        }


SECTIONS: dict[str, Callable[[float], Rows]] = {"check": check, "measure": measure}


def run(out: Path, commit: str | None = None, only: Sequence[str] | None = None) -> dict[str, Any]:
    """Run all sections, or those named, and write what they gave, after each section anew."""
    check_sections(only or (), (*SECTIONS, "tune"))
    if not torch.cuda.is_available():
        raise ValueError("projections are measured on a GPU, and PyTorch sees none here; run this on a CUDA machine")
    began, copy = time.monotonic(), copy_rate()
    results: dict[str, Any] = {"bench": "linear", **provenance(DEVICE, commit), "copy_tb_per_s": round(copy, 3)}
    sections: dict[str, Callable[[float], Rows]] = {
        **SECTIONS,
        "tune": partial(tune, until=began + DEADLINE_S),
    }
    for name, section in sections.items():
        if only and name not in only:
            continue
        results[name] = []
        for row in section(copy):
            results[name].append(row)
            print(json.dumps({"section": name, **row}), flush=True)
        write_atomically(out, json.dumps(results, indent=1) + "\n")
    return results


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None, tuple(sys.argv[3:]))
