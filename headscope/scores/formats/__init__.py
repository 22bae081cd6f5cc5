"""Head files of other tools: read by their content, written by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headscope.scores.document import read_bytes, read_json
from headscope.scores.formats import duoattention, keyed, lists, lukv
from headscope.scores.formats.matrix import Expected
from headscope.scores.head_scores import HeadScores

EXPORTS: dict[str, Callable[[HeadScores, str | Path], None]] = {
    "sparsemm": keyed.write,
    "retrieval_head": keyed.write,
    "headkv": keyed.write,
    "duoattention": duoattention.write,
    "lukv": lukv.write,
    "qrhead": lists.write_qrhead,
    "mixkv": lists.write_mixkv,
}


def read_any(
    path: str | Path, layers: int | None = None, heads: int | None = None, kv_heads: int | None = None
) -> HeadScores:
    """Read a head file of headscope, SparseMM, Retrieval_Head, HeadKV, QRHead, MixKV, PrefixKV, DuoAttention or LU-KV.

    The content says which it is. layers, heads, kv_heads: the model's, checked where given. Files of query heads do not
    say how these share KV heads: give `kv_heads` for grouped models. Files of KV heads (DuoAttention, LU-KV, MixKV)
    give scores with one head a KV head. Heads that are missing, given twice or beyond the geometry, and numbers that
    are not finite or below 0, are a ValueError that names the file, the expected and the found.
    """
    expected = Expected(str(path), layers, heads, kv_heads)
    if Path(path).is_dir():
        return _make(*duoattention.read(path, expected), expected)
    data = read_bytes(path)
    if data.startswith(lukv.MAGIC):
        return _make(*lukv.read(path, expected), expected)
    if data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"[")):
        return _from_json(path, expected)
    return _make(*duoattention.read(path, expected), expected)


def as_scores(scores: HeadScores | str | Path) -> HeadScores:
    """Give HeadScores as they are, and read a path with `read_any`: for every function that takes scores."""
    if isinstance(scores, HeadScores):
        return scores
    if isinstance(scores, str | Path):
        return read_any(scores)
    raise ValueError(
        f"`scores` must be HeadScores or the path of a head file, got {type(scores).__name__}; "
        "HeadScores.from_values(values, kv_heads=...) takes arrays"
    )


def export(scores: HeadScores | str | Path, path: str | Path, format: str) -> None:
    """Write scores as another tool's file (DuoAttention: a folder), whole or not at all. Formats: the keys of EXPORTS.

    sparsemm, retrieval_head, headkv and qrhead carry every query head's score exactly, mixkv the sums of each KV head.
    duoattention and lukv hold shares, not scores: their modules say what is kept.
    """
    if format not in EXPORTS:
        near = difflib.get_close_matches(str(format).lower(), EXPORTS, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"`format` must be one of {', '.join(EXPORTS)}, got {format!r}{hint}")
    EXPORTS[format](as_scores(scores), path)


def _from_json(path: str | Path, expected: Expected) -> HeadScores:
    found = read_json(path)
    if isinstance(found, dict) and "format" in found:
        return _checked(HeadScores.load(path), expected)
    read = keyed.read if isinstance(found, dict) else lists.read
    return _make(*read(found, expected), expected)


def _checked(scores: HeadScores, expected: Expected) -> HeadScores:
    wanted = (expected.layers, expected.heads, expected.kv_heads)
    return scores.check([want or have for want, have in zip(wanted, scores.geometry, strict=True)])


def _make(values: np.ndarray, origin: dict[str, Any], expected: Expected) -> HeadScores:
    kv_heads = values.shape[1] if origin["heads"] == "kv" or expected.kv_heads is None else expected.kv_heads
    return HeadScores(torch.from_numpy(values), kv_heads, probe={"imported": origin}, origin=expected.file)
