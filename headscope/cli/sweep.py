"""``headscope evaluate sweep``: words right against bytes, for every rule, selection and budget.

No point is read twice: those in the result file are known, and so are those of a multirun's jobs, which are kept beside
it. A run after the multirun puts all of them in one table and plot.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscope.cli import summary
from headscope.cli.bind import listed
from headscope.cli.measure import RESULTS
from headscope.cli.model import Model
from headscope.cli.place import Place, check_writable
from headscope.files import write_atomically

if TYPE_CHECKING:
    from headscope.page import Page

SETTING = ("rule", "select", "per_head", "window", "rule_settings", "select_settings")


def sweep(
    place: Place,
    /,
    *,
    model: Model,
    pages: list[Page],
    scores: Path | None,
    rules: list[str] | str,
    selections: list[str] | str,
    per_head: list[int] | int,
    window: int,
    pool: int,
    seeds: int,
    prompt: str,
    max_new_tokens: int,
    batch: int,
    dtype: str,
    device: str | None,
    device_map: str | None,
    out: Path | None,
    picture: Path | None,
) -> None:
    """Read pages at every point that is not known yet; print the table, write file and plot."""
    from headscope.budget.plan import values_hash
    from headscope.evaluate import sweep as work
    from headscope.evaluate.ablation import pages_hash
    from headscope.gate.kept import Kept
    from headscope.page.image import decode
    from headscope.report import sweep_plot
    from headscope.scores import as_scores, find_shipped

    shared = out or RESULTS / f"sweep-{model.label}.json"
    result = place.result(shared)
    drawn = place.result(picture) if picture else result.with_suffix(".png")
    check_writable([result, drawn])
    found = as_scores(scores or find_shipped(model.name or model.path)).check(model.geometry())
    loaded, processor = model.load(dtype, device, device_map)
    asked: dict[str, Any] = {"question": prompt, "max_new_tokens": max_new_tokens}
    tokens = work.prompt_tokens(processor, decode(pages[0].source, name=pages[0].name), prompt)
    shape: dict[str, Any] = {"prompt": tokens, "window": window, "pool": pool, "seeds": seeds}
    points = work.settings(listed(rules), listed(selections), listed(per_head), **shape)
    header = {
        "evaluate": "sweep",
        "model": found.model,
        "dtype": str(loaded.dtype).removeprefix("torch."),
        "scores_hash": values_hash(found.values),
        "pages": len(pages),
        "pages_hash": pages_hash(pages),
        "prompt_tokens": tokens,
        **asked,
    }
    kept = Kept.open(Place().state(shared), header)
    known = _done(shared, header) | kept.records
    left = [point for point in points if point.key not in known]
    for number, point in enumerate(work.sweep(loaded, processor, pages, found, left, batch=batch, **asked), start=1):
        known[point.setting.key] = point.to_json()
        if place.folder is None:
            _write(result, header, known.values(), loaded)
        else:
            kept.keep(point.setting.key, point.to_json())
        print(f"read {number} of {len(left)}: {summary.of_point(point.to_json())}", flush=True)
    wanted = [known[point.key] for point in points]
    if place.folder is not None:
        _write(result, header, wanted, loaded)
    elif kept.records:
        _write(result, header, known.values(), loaded)
        Place().state(shared).unlink()
    title = f"{found.model.get('id') or model.label}, {len(pages)} pages, prompts of {tokens} tokens"
    sweep_plot.draw(wanted, drawn, title=title)
    print(f"\n{summary.of_sweep(wanted)}\nwrote {result}, {drawn}")


def _write(path: Path, header: dict[str, Any], points: Iterable[dict[str, Any]], model: Any) -> None:
    from headscope.bench.provenance import provenance

    document = header | provenance(model.device) | {"points": list(points)}
    write_atomically(path, json.dumps(document, indent=1, allow_nan=False) + "\n")


def _done(path: Path, header: dict[str, Any]) -> dict[str, Any]:
    """Give the points of an earlier run on the same model, pages and question, by setting."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(document, dict) or any(document.get(name) != value for name, value in header.items()):
        return {}
    return {json.dumps({name: at[name] for name in SETTING}, sort_keys=True): at for at in document["points"]}
