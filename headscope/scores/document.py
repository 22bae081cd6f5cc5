"""A document: the JSON text that files of scores and budgets are made of, to be read by people and without trust."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

WHAT = "a head-score file"
_SURROGATE = re.compile("[\ud800-\udfff]")  # file names that are not UTF-8 carry them; they are written as \uXXXX


def layout(value: Any, pad: str = "") -> str:
    """Give JSON text with one key a line, and one item a line for a list of rows or objects. NaN is a ValueError."""
    inner = pad + "  "
    if isinstance(value, dict) and value:
        lines = [f"{inner}{_compact(str(key))}: {layout(item, inner)}" for key, item in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{pad}}}"
    if isinstance(value, list | tuple) and any(isinstance(item, list | tuple | dict) for item in value):
        return "[\n" + ",\n".join(inner + _compact(item) for item in value) + f"\n{pad}]"
    return _compact(value)


def _compact(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def shortest(value: float) -> float:
    """Give the float whose JSON text is the shortest decimal that reads back to the same float32."""
    single = np.float32(value)
    short = float(str(single))
    return short if np.float32(short) == single else float(single)


def read_bytes(path: str | Path, what: str = WHAT) -> bytes:
    """Read a file whole. No file is a FileNotFoundError, a folder or an empty file a ValueError; each names it.

    what: what the file should be, for these errors.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"`{path}`: expected {what}, found no file of that name")
    if path.is_dir():
        raise ValueError(f"`{path}`: expected {what}, found a folder")
    data = path.read_bytes()
    if not data.strip():
        raise ValueError(f"`{path}`: expected {what}, found an empty one ({len(data)} bytes)")
    return data


def read_json(path: str | Path, what: str = WHAT) -> Any:
    """Read a JSON file. Cut off, not UTF-8, a key given twice, NaN or infinity: a ValueError that names it."""
    try:
        return json.loads(read_bytes(path, what).decode("utf-8-sig"), object_pairs_hook=_unique, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"`{path}`: expected a whole JSON document, found {error.msg.lower()} at line {error.lineno} "
            f"column {error.colno}; the file is cut off or is not JSON"
        ) from None
    except UnicodeDecodeError as error:
        raise ValueError(f"`{path}`: expected UTF-8 text, found other bytes at offset {error.start}") from None
    except _BadJsonError as error:
        raise ValueError(f"`{path}`: {error}") from None
    except RecursionError:
        raise ValueError(f"`{path}`: expected {what}, found JSON nested too deeply to be one") from None


class _BadJsonError(Exception):
    """Content that the json module lets through and a score file may not hold."""


def _refuse(constant: str) -> float:
    raise _BadJsonError(f"expected finite numbers, found {constant}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise _BadJsonError(f'expected every key once, found "{twice}" twice')
    return found
