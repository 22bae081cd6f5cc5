"""``headscope evaluate sweep``: words right against bytes, for every rule, selection and budget."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscope.cli import summary
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
    rules: list[str],
    selections: list[str],
    per_head: list[int],
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
    """Read pages at every point that the result file does not hold yet; print the table, write file and plot."""
    from headscope.bench.provenance import provenance
    from headscope.evaluate import sweep as work
    from headscope.evaluate.ablation import pages_hash
    from headscope.page.image import decode
    from headscope.report import sweep_plot
    from headscope.scores import as_scores, find_shipped

    result = place.result(out or RESULTS / f"sweep-{model.label}.json")
    drawn = place.result(picture) if picture else result.with_suffix(".png")
    check_writable([result, drawn])
    found = as_scores(scores or find_shipped(model.name or model.path)).check(model.geometry())
    loaded, processor = model.load(dtype, device, device_map)
    asked: dict[str, Any] = {"question": prompt, "max_new_tokens": max_new_tokens}
    tokens = work.prompt_tokens(processor, decode(pages[0].source, name=pages[0].name), prompt)
    points = work.settings(rules, selections, per_head, prompt=tokens, window=window, pool=pool, seeds=seeds)
    header = {
        "evaluate": "sweep",
        "model": found.model,
        "dtype": str(loaded.dtype).removeprefix("torch."),
        "pages": len(pages),
        "pages_hash": pages_hash(pages),
        "prompt_tokens": tokens,
        **asked,
    }
    done = _done(result, header)
    left = [point for point in points if point.key not in done]
    for number, point in enumerate(work.sweep(loaded, processor, pages, found, left, batch=batch, **asked), start=1):
        done[point.setting.key] = point.to_json()
        print(f"read {number} of {len(left)}: {summary.of_point(done[point.setting.key])}", flush=True)
        document = header | provenance(loaded.device) | {"points": list(done.values())}
        write_atomically(result, json.dumps(document, indent=1, allow_nan=False) + "\n")
    wanted = [done[point.key] for point in points]
    sweep_plot.draw(wanted, drawn, title=str(found.model.get("id") or ""))
    print(f"\n{summary.of_sweep(wanted)}\nwrote {result}, {drawn}")


def _done(path: Path, header: dict[str, Any]) -> dict[str, Any]:
    """Give the points of an earlier run on the same model, pages and question, by setting."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(document, dict) or any(document.get(name) != value for name, value in header.items()):
        return {}
    return {json.dumps({name: at[name] for name in SETTING}, sort_keys=True): at for at in document["points"]}
