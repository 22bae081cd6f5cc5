"""Verify attention against fp32 on a GPU, on many shapes: rows that say `ok` where it is exact enough."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F

from headscope.bench.clock import DEVICE, captured
from headscope.bench.ragged import Case, Cell, Inputs, make
from headscope.kernels import append, ragged_verify
from headscope.kernels.verify import reference

Rows = Iterator[dict[str, Any]]


def asked(case: Case, new: int, seed: int = 1) -> Inputs:
    """Give the inputs of verify attention with `new` random queries per head, on the segments of a decode case."""
    torch.manual_seed(seed)
    row, head, dim = case.query.shape
    query = torch.randn(row, head, new, dim, device=DEVICE, dtype=case.query.dtype)
    return query, *case.inputs[1:]


def by_segment(inputs: Inputs) -> Iterator[tuple[int, torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Give each segment's number, queries [head of the group, new, dim], keys and values."""
    query, key, value, starts, lengths, _ = inputs
    queries = query.view(lengths.numel(), -1, *query.shape[2:])
    for index, (start, length) in enumerate(zip(starts.flatten().tolist(), lengths.flatten().tolist(), strict=True)):
        yield index, queries[index], key[start : start + length], value[start : start + length]


def oracle(inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
    """Give the reference in fp32, one segment at a time: the padded one would not fit for long segments."""
    query, lengths = inputs[0], inputs[4]
    outputs = query.new_empty(
        lengths.numel(), query.shape[1] // lengths.shape[1], *query.shape[2:], dtype=torch.float32
    )
    lses = outputs.new_empty(outputs.shape[:3])
    start = torch.zeros(1, 1, dtype=torch.int64, device=DEVICE)
    for index, queries, keys, values in by_segment(inputs):
        length = torch.full((1, 1), len(keys), dtype=torch.int32, device=DEVICE)
        found = reference(queries[None].float(), keys.float(), values.float(), start, length, inputs[5])
        outputs[index], lses[index] = found[0][0], found[1][0]
    return outputs.view(query.shape), lses.view(query.shape[:3])


def pytorch(inputs: Inputs) -> torch.Tensor:
    """Give PyTorch's own attention in the same dtype, one segment at a time: the honest error."""
    query = inputs[0]
    output = torch.zeros_like(query)
    outputs = output.view(inputs[4].numel(), -1, *query.shape[2:])
    new = query.shape[2]
    for index, queries, keys, values in by_segment(inputs):
        seen = len(keys) - (new - 1 - torch.arange(new, device=DEVICE))
        some = seen > 0
        if some.any():
            mask = torch.arange(len(keys), device=DEVICE) < seen[some][:, None]
            own_keys, own_values = (part.expand(1, len(queries), -1, -1) for part in (keys, values))
            outputs[index][:, some] = F.scaled_dot_product_attention(
                queries[None][:, :, some], own_keys, own_values, attn_mask=mask, scale=inputs[5]
            )[0]
    return output


def compare(inputs: Inputs) -> dict[str, Any]:
    """Compare the kernel with fp32, and its error with PyTorch's in the same dtype."""
    expected, expected_lse = oracle(inputs)
    output, lse = ragged_verify(*inputs)
    scale = expected.norm().clamp(min=1e-30)
    error, honest = (float((found.float() - expected).norm() / scale) for found in (output, pytorch(inputs)))
    lse_error = float((lse - expected_lse).nan_to_num(0, torch.inf, torch.inf).abs().max())
    empty = torch.equal(lse.isneginf(), expected_lse.isneginf()) and not bool(lse.isnan().any())
    ok = empty and error <= 2 * honest + 1e-6 and lse_error < 1e-3
    return {"error": error, "pytorch_error": honest, "lse_error": lse_error, "ok": ok}


def check(_: float) -> Rows:
    """Compare with the reference on shapes from 1 to some thousands of tokens, slack full of NaN."""
    shapes = {
        "one": (Cell(1, 1, 1, 0, 1), [1]),
        "odd": (Cell(2, 3, 1, 0, 0), [7, 129, 1, 333, 64, 65]),
        "empty": (Cell(2, 2, 1, 0, 0), [0, 1000, 0, 1]),
        "all empty": (Cell(1, 2, 1, 0, 0), [0, 0]),
        "unequal": (Cell(1, 4, 1, 0, 0), [3, 20011, 1, 517]),
        "many": (Cell(300, 4, 1, 0, 0), [index * 37 % 90 for index in range(1200)]),
    }
    forms = [(torch.bfloat16, group, dim) for dim in (32, 64, 80, 96, 128, 256) for group in (1, 7)]
    forms += [(torch.bfloat16, 4, 128), (torch.bfloat16, 16, 128), (torch.float16, 7, 128), (torch.float32, 7, 128)]
    news, passed = (2, 5, 9, 10, 16, 40), 0
    for (name, (cell, lengths)), (dtype, group, dim), new in itertools.product(shapes.items(), forms, news):
        if name == "many" and (group, dim, new) != (4, 128, 5):
            continue
        found = compare(asked(make(replace(cell, group=group, dim=dim), lengths, dtype, slack=5), new))
        passed += found["ok"]
        if not found["ok"] or (group == 4 and new in (5, 40)):
            yield {"shape": name, "dtype": str(dtype)[6:], "group": group, "new": new, "dim": dim, **found}
    yield {"forms": len(forms), "shapes": len(shapes), "new": list(news), "passed": passed}


def check_large(_: float) -> Rows:
    """Compare where addresses pass 2^31 elements."""
    inputs = asked(make(Cell(1, 2, 4, 128, 0), [17_000_000, 3001]), 10)
    last = inputs[0][:, 4:], inputs[1], inputs[2], inputs[3][:, 1:], inputs[4][:, 1:], inputs[5]
    expected = oracle(last)[0]
    found = ragged_verify(*inputs)[0][:, 4:]
    off = float((found.float() - expected).norm() / expected.norm())
    yield {"slots": inputs[1].shape[0], "error": off, "ok": off < 5e-3}


def check_graph(_: float) -> Rows:
    """Replay one CUDA graph of append and verify while lengths change, the host never waited for."""
    case = make(Cell(4, 4, 7, 128, 0), [3000] * 16, slack=1000)
    case.key.nan_to_num_(0.5)
    case.value.nan_to_num_(0.5)
    inputs = asked(case, 10)
    new_key, new_value = (torch.randn(4, 4, 10, 128, device=DEVICE, dtype=torch.bfloat16) for _ in "kv")

    def step() -> tuple[torch.Tensor, torch.Tensor]:
        append(case.key, case.value, case.starts, case.lengths, new_key, new_value)
        return ragged_verify(*inputs)

    step()
    torch.cuda.set_sync_debug_mode("error")
    try:
        step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph, (output, _) = captured(step)
    for seed, most in enumerate((1, 50, 3000, 3900)):
        torch.manual_seed(seed)
        case.lengths.copy_(torch.randint(0, most, (4, 4)))
        for replays in range(1, 4):
            graph.replay()
            expected = oracle(inputs)[0]
            off = float((output.float() - expected).norm() / expected.norm())
            tokens = int(case.lengths.sum())
            yield {"most": most, "replays": replays, "tokens": tokens, "error": off, "ok": off < 5e-3}
