"""The acceptance file: every setting that was measured, with what it was measured on; a rerun goes on with it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headscope.bench.provenance import provenance
from headscope.budget.plan import values_hash
from headscope.evaluate.ablation import pages_hash
from headscope.evaluate.acceptance import Setting, measure, prompts
from headscope.files import write_atomically
from headscope.page import Page
from headscope.scores import HeadScores

SETTING = ("task", "draft", "per_head", "gamma", "window", "settings")


def run(
    model: Any,
    processor: Any,
    pages: Sequence[Page],
    scores: HeadScores,
    points: Sequence[Setting],
    path: Path,
    *,
    picture_prompts: int = 63,
    batch: int = 10,
    max_new_tokens: int = 400,
    say: Callable[[dict[str, Any]], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """Measure every setting that the file does not hold yet, write each as soon as it is there, and give all.

    say: called with each point that was measured.
    """
    header = {
        "evaluate": "acceptance",
        "model": scores.model,
        "dtype": str(model.dtype).removeprefix("torch."),
        "scores_hash": values_hash(scores.values),
        "pages": len(pages),
        "pages_hash": pages_hash(pages),
        "picture_prompts": picture_prompts,
        "max_new_tokens": max_new_tokens,
    }
    done = _done(path, header)
    for task in dict.fromkeys(point.task for point in points):
        left = [point for point in points if point.task == task and point.key not in done]
        asked = prompts(task, pages, picture_prompts) if left else []
        for point in measure(model, processor, asked, scores, left, batch=batch, max_new_tokens=max_new_tokens):
            done[point.setting.key] = point.to_json()
            document = header | provenance(model.device) | {"points": list(done.values())}
            write_atomically(path, json.dumps(document, indent=1, allow_nan=False) + "\n")
            say(done[point.setting.key])
    return [done[point.key] for point in points]


def _done(path: Path, header: dict[str, Any]) -> dict[str, Any]:
    """Give the points of an earlier run on the same model, pages and prompts, by setting."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(document, dict) or any(document.get(name) != value for name, value in header.items()):
        return {}
    return {json.dumps({name: at[name] for name in SETTING}, sort_keys=True): at for at in document["points"]}
