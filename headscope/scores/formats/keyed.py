"""Keyed JSON: `{"0-0": [0.0, 0.0006], "0-1": [0.21, 0]}`, as SparseMM, Retrieval_Head and HeadKV keep query heads.

A list holds one score a sample; the head's score is its mean. MixKV's `{"0-0-key": [..]}` is the same for KV heads.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np

from headscope.files import write_atomically
from headscope.scores.formats.matrix import Expected, assemble, number
from headscope.scores.head_scores import HeadScores

LARGEST = float(np.finfo(np.float32).max)
_KEY = re.compile(r"(\d+)-(\d+)(-key)?")


def read(found: dict[str, Any], expected: Expected) -> tuple[np.ndarray, dict[str, Any]]:
    """Give float64 [layer, head] of a parsed file, and what it was. Keys of any other form are a ValueError."""
    keys = {key: _KEY.fullmatch(key) for key in found}
    if unknown := [key for key, match in keys.items() if not match]:
        raise expected.error('keys "layer-head" such as "0-0"', f'"{unknown[0]}"')
    kinds = {bool(match and match[3]) for match in keys.values()}
    if len(kinds) > 1:
        raise expected.error('keys of one form, "0-0" or "0-0-key"', "both")
    kv = True in kinds
    places = ((int(match[1]), int(match[2]), _mean(found[key], key, expected)) for key, match in keys.items() if match)
    return assemble(places, expected, kv), {"format": "mixkv" if kv else "sparsemm", "heads": "kv" if kv else "query"}


def _mean(samples: Any, key: str, expected: Expected) -> float:
    """Give the mean of a head's per-sample scores; one bare number stands for itself."""
    if not isinstance(samples, list):
        return number(samples, key, expected)
    if not samples:
        raise expected.error(f"at least one score for head {key}", "an empty list")
    values = [number(sample, key, expected) for sample in samples]
    if bad := [value for value in values if not 0 <= value <= LARGEST]:  # a mean could hide a negative one
        raise expected.error(f"finite scores of at least 0 for head {key}", str(bad[0]))
    return math.fsum(values) / len(values)


def write(scores: HeadScores, path: str | Path) -> None:
    """Write every head as a list of one score, exactly: one line, layer by layer, for readers that rely on order."""
    keyed = {f"{i}-{j}": [value] for i, row in enumerate(scores.values.tolist()) for j, value in enumerate(row)}
    write_atomically(path, json.dumps(keyed, allow_nan=False) + "\n")
