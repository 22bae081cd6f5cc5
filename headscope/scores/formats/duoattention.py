"""DuoAttention: a folder with full_attention_heads.tsv (layers x KV heads, tab, no header) and config.json.

Its numbers are shares of full attention, 0 to 1. Writing sums the query heads of each KV head and divides by the
largest sum: the best head becomes 1, ratios between heads stay. Reading gives these shares as scores; reading back what
was written is exact.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from headscope.files import write_atomically
from headscope.scores.document import read_bytes, read_json, shortest
from headscope.scores.formats.matrix import Expected, number, rows_of
from headscope.scores.head_scores import HeadScores

TABLE, CONFIG = "full_attention_heads.tsv", "config.json"
SINK_SIZE, RECENT_SIZE = 128, 256  # those of the published patterns


def read(path: str | Path, expected: Expected) -> tuple[np.ndarray, dict[str, Any]]:
    """Give float64 [layer, kv] of a folder or of its table alone, and the streaming sizes of its config."""
    table = Path(path) / TABLE if Path(path).is_dir() else Path(path)
    values = rows_of(_rows(table, expected), expected)
    expected.check(values.shape, kv=True)
    if (values > 1).any():
        layer, head = np.argwhere(values > 1)[0].tolist()
        raise expected.error("shares from 0 to 1", f"{values[layer, head]} at layer {layer}, KV head {head}")
    config = read_json(table.with_name(CONFIG)) if (table.with_name(CONFIG)).is_file() else {}
    if not isinstance(config, dict):
        raise expected.error(f"{CONFIG} to be an object", repr(config))
    sizes = {key: int(number(config[key], key, expected)) for key in ("sink_size", "recent_size") if key in config}
    return values, {"format": "duoattention", "heads": "kv"} | sizes


def _rows(table: Path, expected: Expected) -> list[list[float]]:
    data = read_bytes(table)
    try:
        lines = data.decode("utf-8-sig").splitlines()
        return [[float(cell) for cell in line.split("\t")] for line in lines if line.strip()]
    except ValueError as error:
        raise expected.error(
            "head scores as JSON, a table of numbers with tabs or an .npy array", f"other content ({error})"
        ) from None


def write(scores: HeadScores, path: str | Path) -> None:
    """Write the folder. All-zero scores have no largest one to divide by: a ValueError."""
    sums = scores.kv().double()
    if not sums.max() > 0:
        raise ValueError("`scores` must have a head above 0 for DuoAttention's shares, got all zeros")
    shares = (sums / sums.max()).float().tolist()
    text = "".join("\t".join(repr(shortest(share)) for share in row) + "\n" for row in shares)
    write_atomically(Path(path) / TABLE, text)
    write_atomically(Path(path) / CONFIG, json.dumps({"sink_size": SINK_SIZE, "recent_size": RECENT_SIZE}) + "\n")
