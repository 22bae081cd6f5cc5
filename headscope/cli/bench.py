"""The verbs that measure what things cost: each runs a bench with the grid of its config, and shows what it found."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

from headscope.cli import result
from headscope.cli.bind import listed
from headscope.cli.measure import RESULTS
from headscope.cli.model import free_device
from headscope.cli.place import Place, check_writable
from headscope.files import write_atomically


def probe(
    place: Place, /, *, limit: int, device: str | None, memory: bool | None, commit: str | None, out: Path | None
) -> None:
    """Measure what probing costs, print it and write the result."""
    from headscope.bench.probe import run

    chosen = device or free_device()
    path = place.result(out or RESULTS / f"probe-{chosen.partition(':')[0]}.json")
    check_writable([path])
    text = json.dumps(run(pages=limit, device=chosen, memory=memory, commit=commit), indent=1, allow_nan=False)
    write_atomically(path, text + "\n")
    print(f"{text}\nwrote {path}")


def decode(
    place: Place,
    /,
    *,
    shapes: list[str] | str,
    contexts: list[int] | int,
    batches: list[int] | int,
    budgets: list[int] | int,
    layers: int | None,
    stock: bool,
    commit: str | None,
    out: Path | None,
    picture: Path | None,
) -> None:
    """Measure the latency of decode steps, print the table, write the result and the plot."""
    grid = {"shapes": listed(shapes), "contexts": listed(contexts), "batches": listed(batches)}
    _measure("decode", place, out, picture, commit=commit, layers=layers, stock=stock, budgets=listed(budgets), **grid)


def memory(
    place: Place,
    /,
    *,
    shapes: list[str] | str,
    contexts: list[int] | int,
    budgets: list[int] | int,
    layers: int | None,
    commit: str | None,
    out: Path | None,
    picture: Path | None,
) -> None:
    """Measure memory and time of whole answers, print the table, write the result and the plot."""
    grid = {"shapes": listed(shapes), "contexts": listed(contexts), "budgets": listed(budgets)}
    _measure("memory", place, out, picture, commit=commit, layers=layers, **grid)


def kernels(place: Place, /, *, only: list[str] | str | None, commit: str | None, out: Path | None) -> None:
    """Check and time the kernels, and write the result."""
    _measure("kernels", place, out, commit=commit, only=listed(only))


def linear(place: Place, /, *, only: list[str] | str | None, commit: str | None, out: Path | None) -> None:
    """Check and time the projections, and write the result."""
    _measure("linear", place, out, commit=commit, only=listed(only))


def _measure(name: str, place: Place, out: Path | None, picture: Path | None = None, **settings: Any) -> None:
    """Run `headscope.bench.<name>`, which writes its result as it goes; show it where there is a table and a plot."""
    path = place.result(out or RESULTS / f"{name}-cuda.json")
    drawn = result.plot_of(name, path, picture and place.result(picture))
    check_writable([path, *([drawn] if drawn else [])])
    found = importlib.import_module(f"headscope.bench.{name}").run(path, **settings)
    if drawn:
        print(f"\n{result.show(found, path, drawn)}\n")
    print(f"wrote {path}" + (f", {drawn}" if drawn else ""))
