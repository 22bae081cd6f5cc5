"""``headscope evaluate ablation``: how well a model reads without some heads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscope.cli import summary
from headscope.cli.model import Model
from headscope.cli.place import Place, check_writable
from headscope.files import write_atomically

if TYPE_CHECKING:
    from headscope.page import Page

RESULTS = Path("scores") / "bench"


def ablation(
    place: Place,
    /,
    *,
    model: Model,
    pages: list[Page],
    scores: Path | None,
    sizes: list[int] | None,
    draws: int,
    seed: int,
    prompt: str,
    max_new_tokens: int,
    batch: int,
    dtype: str,
    device: str | None,
    device_map: str | None,
    out: Path | None,
) -> None:
    """Read pages with heads silenced, print the table and write the result."""
    from headscope.bench.provenance import provenance
    from headscope.evaluate import ablation as work
    from headscope.scores import as_scores, find_shipped

    result = place.result(out or RESULTS / f"ablation-{model.label}.json")
    check_writable([result])
    found = as_scores(scores or find_shipped(model.name or model.path)).check(model.geometry(), query_heads=True)
    conditions = work.plan(found, sizes or work.default_sizes(found), draws, seed)
    loaded, processor = model.load(dtype, device, device_map)
    asked: dict[str, Any] = {"question": prompt, "max_new_tokens": max_new_tokens}
    outcomes = []
    for outcome in work.ablate(loaded, processor, pages, conditions, batch=batch, **asked):
        outcomes.append(outcome)
        print(f"read {len(outcomes)} of {len(conditions)}: {summary.of_outcome(outcome)}", flush=True)
    settings = {"model": found.model, "pages": len(pages), "pages_hash": work.pages_hash(pages), "seed": seed, **asked}
    document: dict[str, Any] = {"evaluate": "ablation", **settings, **provenance(loaded.device)}
    document |= {"outcomes": [outcome.to_json() for outcome in outcomes]}
    write_atomically(result, json.dumps(document, indent=1, allow_nan=False) + "\n")
    print(f"\n{summary.of_ablation(outcomes)}\nwrote {result}")
