"""``headscope bytes``: the account of a decode step, as a table or one JSON object, and the plot of its bounds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from headscope.cli import account_text
from headscope.cli.model import BUNDLED, Model
from headscope.cli.place import Place, check_writable
from headscope.files import write_atomically


def step_bytes(
    place: Place,
    /,
    *,
    model: Model,
    context: int,
    batch: int,
    keep_act: float,
    keep_kv: float,
    dtype: str | None,
    weight_dtype: str | None,
    kv_dtype: str | None,
    draft_tokens: int | None,
    gamma: int,
    acceptance: float | None,
    format: Literal["table", "json"],
    out: Path | None,
    plot: Path | None,
) -> None:
    """Account for a decode step and print it; write the same text and the plot where asked.

    With format=json nothing but the object is printed.
    """
    from headscope.accounting import account, load_config
    from headscope.accounting.document import to_json
    from headscope.accounting.ledger import FINE
    from headscope.report import bounds_plot

    written = [place.result(path) for path in (out, plot) if path is not None]
    check_writable(written)
    name = model.location if model.path.startswith(BUNDLED) else model.path
    found = account(
        load_config(name, revision=model.revision),
        name=model.name or model.path,
        context=context,
        batch=batch,
        keep_act=keep_act,
        keep_kv=keep_kv,
        draft_tokens=draft_tokens,
        dtype=dtype,
        weight_dtype=weight_dtype,
        kv_dtype=kv_dtype,
    )
    document = to_json(found, gamma=gamma, acceptance=acceptance)
    text = json.dumps(document, indent=1, allow_nan=False) if format == "json" else account_text.of(document)
    if out is not None:
        write_atomically(place.result(out), text + "\n")
    if plot is not None:
        title = f"{found.name}, batch {batch}\n{keep_act:.0%} of activations kept, {keep_kv:.0%} of the cache"
        bounds_plot.draw(found.curve(FINE), document["crossover_tokens"], place.result(plot), title)
    print(text)
    if written and format == "table":
        print(f"wrote {', '.join(map(str, written))}")
