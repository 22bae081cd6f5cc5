"""The verbs about score files: ``merge``, ``import``, ``diff``."""

from __future__ import annotations

import dataclasses
import glob
from pathlib import Path

from headscope.cli import summary
from headscope.cli.model import Model
from headscope.cli.place import Place, check_writable


def merge(place: Place, /, *, parts: list[Path] | str, out: Path, keep_pages: bool) -> None:
    """Join score files and write the whole."""
    from headscope.scores.merge import merge as join

    result = place.result(out)
    check_writable([result])
    found = _files(parts)
    scores = join(found, keep_pages=keep_pages)
    scores.save(result)
    print(f"{summary.of_scores(scores)}\nmerged {len(found)} parts into {result}")


def import_scores(
    place: Place,
    /,
    *,
    path: Path,
    out: Path,
    layers: int | None,
    heads: int | None,
    kv_heads: int | None,
    name: str | None,
    model: Model | None = None,
) -> None:
    """Read another tool's head file and write a score file."""
    from headscope.scores.formats import read_any

    result = place.result(out)
    check_writable([result])
    if not path.exists():
        raise FileNotFoundError(f"`path`: nothing found at {path}")
    given = [layers, heads, kv_heads]
    if model is not None and None in given:
        sizes = model.geometry()
        read = (sizes.layers, sizes.heads, sizes.kv_heads)
        given = [mine or known for mine, known in zip(given, read, strict=True)]
    scores = read_any(path, *given)
    if called := name or (model and (model.name or model.path)):
        scores = dataclasses.replace(scores, model=scores.model | {"id": called})
    scores.save(result)
    print(f"{summary.of_scores(scores)}\nimported {path} as {result}")


def diff(place: Place, /, *, a: Path, b: Path, k: int | list[int] | None, moves: int) -> None:
    """Print how far two score files agree."""
    from headscope.scores.compare import diff as compare

    print(compare(a, b, k, moves))


def _files(parts: list[Path] | str) -> list[Path]:
    if not isinstance(parts, str):
        return parts
    if found := [parts] if Path(parts).is_file() else sorted(glob.glob(parts, recursive=True)):
        return [Path(path) for path in found]
    raise FileNotFoundError(
        f"`parts`: nothing found at {parts}; give a glob in quotes, or a list such as [a.json,b.json]"
    )
