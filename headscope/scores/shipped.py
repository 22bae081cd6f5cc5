"""Shipped scores: the score files that come with headscope, found by the model they belong to."""

from __future__ import annotations

from pathlib import Path

from headscope.resources import find
from headscope.scores.document import read_json
from headscope.scores.score_file import FORMAT


def find_shipped(model_id: str) -> Path:
    """Give the shipped score file of a model: by file name, else by its `model.id`; the id's last part, in any case.

    Raises FileNotFoundError that says which file was looked for and how to make one.
    """
    name = _last_part(model_id)
    files = _files()
    for path in files:
        if path.stem.lower() == name.lower():
            return path
    for path in files:
        if _last_part(_id(path)).lower() == name.lower():
            return path
    shipped = ", ".join(path.stem for path in files) or "none"
    raise FileNotFoundError(
        f"`scores/{name}.json` does not ship with headscope (shipped: {shipped}); "
        f"make it with `headscope probe model={model_id} out={name}.json`, then name that file as `scores`"
    )


def _files() -> list[Path]:
    try:
        return sorted(find("scores").glob("*.json"))
    except FileNotFoundError:
        return []


def _last_part(model_id: str) -> str:
    return str(model_id).rstrip("/").rsplit("/", 1)[-1]


def _id(path: Path) -> str:
    try:
        found = read_json(path)
    except ValueError:
        return ""
    model = found.get("model") if isinstance(found, dict) and found.get("format") == FORMAT else None
    return str(model.get("id") or "") if isinstance(model, dict) else ""
