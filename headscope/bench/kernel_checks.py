"""The kernels against their references on a GPU, on many shapes: rows that say `ok` where it is exact enough."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from headscope.bench.clock import DEVICE, captured
from headscope.bench.ragged import Case, Cell, make, oracle, pytorch
from headscope.kernels import append, pack, ragged_decode
from headscope.kernels.append import reference as append_reference
from headscope.kernels.gather import reference as pack_reference

Rows = Iterator[dict[str, Any]]


def compare(case: Case) -> dict[str, Any]:
    """Compare the kernel with fp32, and its error with PyTorch's in the same dtype."""
    expected, expected_lse = oracle(case)
    output, lse = ragged_decode(*case.inputs)
    scale = expected.norm().clamp(min=1e-30)
    error, honest = (float((found.float() - expected).norm() / scale) for found in (output, pytorch(case)))
    lse_error = float((lse - expected_lse).nan_to_num(0, torch.inf, torch.inf).abs().max())
    empty = torch.equal(lse.isneginf(), expected_lse.isneginf()) and not bool(lse.isnan().any())
    return {
        "error": error,
        "pytorch_error": honest,
        "lse_error": lse_error,
        "ok": empty and error <= 2 * honest + 1e-6 and lse_error < 1e-3,
    }


def check_decode(_: float) -> Rows:
    """Compare decode with its reference on shapes from 1 to some thousands of tokens."""
    shapes = {
        "one": (Cell(1, 1, 1, 0, 1), [1]),
        "odd": (Cell(2, 3, 1, 0, 0), [7, 129, 1, 333, 64, 65]),
        "empty": (Cell(2, 2, 1, 0, 0), [0, 1000, 0, 1]),
        "all empty": (Cell(1, 2, 1, 0, 0), [0, 0]),
        "unequal": (Cell(1, 4, 1, 0, 0), [3, 20011, 1, 517]),
        "many": (Cell(300, 4, 1, 0, 0), [index * 37 % 90 for index in range(1200)]),
    }
    bf16 = [(7, dim) for dim in (32, 64, 80, 96, 128, 256)] + [(1, 64), (1, 128), (1, 256), (4, 128), (16, 128)]
    forms = [(torch.bfloat16, *form) for form in bf16]
    forms += [(torch.float16, 7, 128), (torch.float16, 1, 80), (torch.float32, 1, 32), (torch.float32, 7, 128)]
    for (name, (cell, lengths)), (dtype, group, dim) in itertools.product(shapes.items(), forms):
        if name != "many" or (group, dim) == (4, 128):
            found = compare(make(replace(cell, group=group, dim=dim), lengths, dtype, slack=5))
            if not found["ok"] or group == 4:
                yield {"shape": name, "dtype": str(dtype)[6:], "group": group, "dim": dim, **found}
    yield {"forms": len(forms), "shapes": len(shapes)}


def check_large(_: float) -> Rows:
    """Compare decode where addresses pass 2^31 elements."""
    cell = Cell(1, 2, 4, 128, 0)
    case = make(cell, [17_000_000, 3001])
    last = replace(case, query=case.query[:, 4:], starts=case.starts[:, 1:], lengths=case.lengths[:, 1:])
    expected = oracle(last)[0]
    found = ragged_decode(*case.inputs)[0][:, 4:]
    off = float((found.float() - expected).norm() / expected.norm())
    yield {"slots": case.key.shape[0], "error": off, "ok": off < 5e-3}


def check_moves(_: float) -> Rows:
    """Compare pack and append with their references, exactly."""
    for dtype, dim, new in itertools.product((torch.bfloat16, torch.float32), (32, 80, 128, 256), (1, 3, 70)):
        cell = Cell(2, 3, 1, dim, 0)
        case = make(cell, [0, 5, 64, 1, 333, 128], dtype, slack=100)
        source_key, source_value = (
            torch.randn(2, 400, 3, dim, device=DEVICE, dtype=dtype).transpose(1, 2) for _ in "kv"
        )
        kept = [torch.randperm(400, device=DEVICE)[:length].sort().values for length in case.lengths.flatten().tolist()]
        more = [torch.randn(2, new, 3, dim, device=DEVICE, dtype=dtype).transpose(1, 2) for _ in "kv"]
        ends = []
        for do_pack, do_append in ((pack, append), (pack_reference, append_reference)):
            key, value, lengths = (tensor.clone() for tensor in (case.key, case.value, case.lengths))
            do_pack(source_key, source_value, torch.cat(kept), key, value, case.starts, lengths)
            do_append(key, value, case.starts, lengths, *more)
            do_append(key, value, case.starts, lengths, more[0][:, :, :1], more[1][:, :, :1])
            ends.append((key.nan_to_num(9), value.nan_to_num(9), lengths))
        same = all(torch.equal(ours, theirs) for ours, theirs in zip(*ends, strict=True))
        yield {"dtype": str(dtype)[6:], "dim": dim, "new": new, "ok": same}


def check_graph(_: float) -> Rows:
    """Replay one CUDA graph of append and decode while lengths change, the host never waited for."""
    cell = Cell(4, 4, 7, 128, 0)
    case = make(cell, [3000] * 16, slack=1000)
    case.key.nan_to_num_(0.5)
    case.value.nan_to_num_(0.5)
    new_key, new_value = (torch.randn(4, 4, 1, 128, device=DEVICE, dtype=torch.bfloat16) for _ in "kv")

    def step() -> tuple[torch.Tensor, torch.Tensor]:
        append(case.key, case.value, case.starts, case.lengths, new_key, new_value)
        return ragged_decode(*case.inputs)

    step()
    torch.cuda.set_sync_debug_mode("error")
    try:
        step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph, (output, _) = captured(step)
    for seed, most in enumerate((1, 50, 3000, 3990)):
        torch.manual_seed(seed)
        case.lengths.copy_(torch.randint(0, most, (4, 4)))
        for replays in range(1, 4):
            graph.replay()
            expected = oracle(case)[0]
            off = float((output.float() - expected).norm() / expected.norm())
            tokens = int(case.lengths.sum())
            yield {"most": most, "replays": replays, "tokens": tokens, "error": off, "ok": off < 5e-3}
