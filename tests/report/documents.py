"""Results as benches write them, of few cells: what is measured, what does not fit, what failed."""

from __future__ import annotations

from typing import Any

ORIGIN: dict[str, Any] = {
    "hardware": {"gpu": "NVIDIA H200", "memory_gib": 139.8},
    "software": {"torch": "2.11.0", "transformers": "5.17.0"},
    "commit": "abc123",
}


def step(context: int, cache: str | int, attention: str, ms: float, gigabytes: float, **cell: Any) -> dict[str, Any]:
    """One measured step; the copy moves 4 TB/s."""
    known = {"shape": "vicuna-7b", "batch": 1} | cell | {"context": context, "cache": cache, "attention": attention}
    if attention == "transformers":
        return known | {"ms_per_token": ms, "spread_ms": 0.5}
    rate = gigabytes / ms
    times = {"ms_per_token": ms, "spread_ms": 0.1, "bytes": int(gigabytes * 1e9), "tb_per_s": round(rate, 3)}
    return known | times | {"of_copy": round(rate / 4, 3)}


def failed(context: int, why: str, **cell: Any) -> dict[str, Any]:
    return {"shape": "vicuna-7b", "batch": 1} | cell | {"context": context, "cache": "full", "failed": why}


DECODE: dict[str, Any] = {
    "bench": "decode",
    **ORIGIN,
    "shapes": [
        {"copy_tb_per_s": 4.0},
        {"shape": "vicuna-7b", "weight_bytes": 12_000_000_000, "weights_ms": 3.0},
        {"shape": "other", "weight_bytes": 8_000_000_000, "weights_ms": 2.0},
    ],
    "cells": [
        step(2048, 256, "headscope", 4.2, 12.5),
        step(2048, "full", "headscope", 4.1, 13),
        step(2048, "full", "sdpa", 4.0, 13),
        step(2048, "full", "transformers", 60, 0),
        step(32768, 64, "headscope", 3.7, 12.2),
        step(32768, 256, "headscope", 3.75, 12.5),
        step(32768, "full", "headscope", 7.8, 30),
        step(32768, "full", "sdpa", 7.5, 30),
        failed(32768, "RuntimeError: no", attention="fa3"),
        step(131072, 256, "headscope", 3.75, 12.5),
        failed(131072, "does not fit in the memory"),
        step(2048, 256, "headscope", 5, 14, batch=8),
        step(2048, "full", "sdpa", 6, 20, batch=8),
        step(32768, 256, "headscope", 5, 14, batch=8),
        failed(32768, "does not fit in the memory", batch=8),
        step(32768, "full", "sdpa", 4, 10, shape="other"),
    ],
}


def answered(context: int, run: str, peak: int, steady: int, ms: float, **cell: Any) -> dict[str, Any]:
    """One whole answer, or a prefill."""
    known = {"shape": "vicuna-7b", "context": context, "batch": 1, "new_tokens": 100, "weight_mib": 12000, **cell}
    sizes = {"peak_mib": peak, "steady_mib": steady, "kv_mib": steady - 12000}
    return known | {"run": run, **sizes, "first_token_s": 0.5, "ms_per_token": ms, "decode_s": ms / 10}


def prefilled(context: int, seconds: float, mib: int, **cell: Any) -> dict[str, Any]:
    """A prompt without an answer."""
    known = {"shape": "vicuna-7b", "context": context, "batch": 1, "new_tokens": 100, "weight_mib": 12000, **cell}
    return known | {"run": "prefill", "prefill_s": seconds, "prefill_mib": mib}


NOT = {"failed": "does not fit in the memory"}
MEMORY: dict[str, Any] = {
    "bench": "memory",
    **ORIGIN,
    "cells": [
        answered(2048, "transformers", 14000, 13500, 20),
        answered(2048, "full", 14280, 13600, 5),
        prefilled(2048, 0.06, 1200),
        answered(2048, "budget", 13000, 12960, 4, budget=256),
        prefilled(2048, 0.075, 1000, budget=256),
        answered(32768, "transformers", 32000, 30000, 22),
        {"shape": "vicuna-7b", "context": 32768, "new_tokens": 100, "weight_mib": 12000, "run": "full", **NOT},
        prefilled(32768, 1.4, 19000),
        answered(32768, "budget", 16000, 12960, 4, budget=256),
        prefilled(32768, 1.47, 3000, budget=256),
        {"shape": "vicuna-7b", "context": 131072, "new_tokens": 100, "weight_mib": 12000, "run": "transformers", **NOT},
        answered(131072, "budget", 25000, 12960, 4, budget=256),
        prefilled(131072, 20, 12000, budget=256),
    ],
}
DOCUMENTS = {"decode": DECODE, "memory": MEMORY}
