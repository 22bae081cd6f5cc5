"""Plain JSON lists: QRHead's ranking, MixKV's rows of KV heads, PrefixKV's one number a layer."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from headscope.files import write_atomically
from headscope.scores.formats.matrix import Expected, assemble, number, rows_of
from headscope.scores.head_scores import HeadScores

_NAME = re.compile(r"(\d+)-(\d+)")


def read(found: list[Any], expected: Expected) -> tuple[np.ndarray, dict[str, Any]]:
    """Give float64 [layer, head] of a parsed list, and what it was: the first item tells."""
    first = found[0] if found else None
    if isinstance(first, list) and first and isinstance(first[0], str):
        return _qrhead(found, expected), {"format": "qrhead", "heads": "query"}
    if isinstance(first, list):
        values = rows_of(found, expected)
        expected.check(values.shape, kv=True)
        return values, {"format": "mixkv", "heads": "kv"}
    if isinstance(first, int | float):
        return _prefixkv(found, expected), {"format": "prefixkv", "heads": "kv"}
    raise expected.error('a list such as [["13-2", 0.41], ..] or [[0.1, 0.2], ..]', f"one that starts with {first!r}")


def _qrhead(found: list[Any], expected: Expected) -> np.ndarray:
    """Read `[["13-2", 0.41], ["5-7", 0.33]]`: query heads, best first."""
    places = []
    for item in found:
        match = _NAME.fullmatch(str(item[0])) if isinstance(item, list) and len(item) == 2 else None
        if not match:
            raise expected.error('pairs such as ["13-2", 0.41]', repr(item))
        places.append((int(match[1]), int(match[2]), number(item[1], match[0], expected)))
    return assemble(places, expected)


def _prefixkv(found: list[Any], expected: Expected) -> np.ndarray:
    """Read `[0.11, 0.24]`: one number a layer, which all its KV heads get."""
    if expected.kv_heads is None:
        raise expected.error(
            "one score a head (or `kv_heads`, to give each layer's to all its heads)", "one score a layer"
        )
    column = np.array([[number(value, str(layer), expected)] for layer, value in enumerate(found)])
    values = np.repeat(column, expected.kv_heads, axis=1)
    expected.check(values.shape, kv=True)
    return values


def write_qrhead(scores: HeadScores, path: str | Path) -> None:
    """Write all query heads as pairs, best first."""
    ranking = [[f"{layer}-{head}", score] for layer, head, score in scores.top(scores.values.numel())]
    write_atomically(path, json.dumps(ranking, allow_nan=False) + "\n")


def write_mixkv(scores: HeadScores, path: str | Path) -> None:
    """Write rows of KV heads: the sum over the query heads of each."""
    write_atomically(path, json.dumps(scores.kv().tolist(), allow_nan=False) + "\n")
