"""``headscope plan``: how to decode a model on a GPU, and the evidence for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from headscope.cli import plan_text
from headscope.cli.measure import RESULTS
from headscope.cli.model import BUNDLED, Model
from headscope.cli.place import Place, check_writable
from headscope.files import write_atomically
from headscope.resources import find

DRAFT_TOKENS = 1024  # StD's


def plan(
    place: Place,
    /,
    *,
    model: Model,
    gpu: str,
    context: int,
    batch: int,
    quality: float,
    acceptance: float | None,
    draft_tokens: int | None,
    dtype: str | None,
    results: Path | None,
    format: Literal["table", "json"],
    out: Path | None,
) -> None:
    """Weigh the options and print them; write the same text where asked."""
    from headscope.accounting import account, load_config
    from headscope.plan import Results, find_gpu
    from headscope.plan import plan as weigh

    written = [place.result(out)] if out is not None else []
    check_writable(written)
    name = model.location if model.path.startswith(BUNDLED) else model.path
    found = account(
        load_config(name, revision=model.revision),
        name=model.name or model.path,
        context=context,
        batch=batch,
        draft_tokens=min(context, draft_tokens or DRAFT_TOKENS),
        dtype=dtype,
    )
    known = Results.read(folders(results))
    chosen = find_gpu(gpu, known.calibrations)
    planned = weigh(found, chosen, known, quality=quality, names=(model.path, model.label), acceptance=acceptance)
    document = planned.to_json()
    text = json.dumps(document, indent=1, allow_nan=False) if format == "json" else plan_text.of(document)
    for path in written:
        write_atomically(path, text + "\n")
    print(text)
    if written and format == "table":
        print(f"wrote {written[0]}")


def folders(results: Path | None) -> list[Path]:
    """Say where results are looked for: in the folder given, else in that of here and in that which ships."""
    if results is None:
        return [RESULTS, find("scores") / "bench"]
    if not results.is_dir():
        raise FileNotFoundError(f"`results` must be a folder with result files, {results} is none")
    return [results]
