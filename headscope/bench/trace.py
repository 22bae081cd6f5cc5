"""A trace of acceptance: how many draft tokens stood in each round, recorded on the bundled model.

    python -m headscope.bench.trace OUT

`headscope bench speculate` forces it on rounds of large shapes, whose random weights accept nothing by themselves.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from headscope.bench.provenance import provenance
from headscope.files import write_atomically
from headscope.page import Page
from headscope.page.image import decode
from headscope.page.source import bundled
from headscope.probing.prompt import ask
from headscope.speculate import SparseToDense

PAGES = 48
GAMMAS = (9, 7)
QUESTION = "Read the text."
WINDOW = 16
DRAFTS: dict[str, dict[str, Any]] = {
    "head_budget 48": {"draft": "head_budget", "per_head": 48, "window": WINDOW, "ratio": 0.1},
    "head_budget 32": {"draft": "head_budget", "per_head": 32, "window": WINDOW, "ratio": 0.1},
    "text_guided 64": {"draft": "text_guided", "per_head": 64},
}


def record(model: Any, processor: Any, pages: Sequence[Page], settings: dict[str, Any], gamma: int) -> list[int]:
    """Read pages; give the accepted tokens of each block that was whole, in order."""
    found: list[int] = []
    for page in pages:
        inputs = ask(processor, [decode(page.source, name=page.name)], QUESTION).to(model.device, dtype=model.dtype)
        draft = SparseToDense(gamma=gamma, **settings)
        model.generate(**inputs, do_sample=False, max_new_tokens=320, custom_generate=draft)
        found += [stood for proposed, stood in draft.report.blocks if proposed == gamma]
    return found


def traces(model: Any, processor: Any, pages: Sequence[Page], scores: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Record every draft at every gamma."""
    for name, settings in DRAFTS.items():
        own = settings | ({"scores": scores} if settings["draft"] == "head_budget" else {})
        for gamma in GAMMAS:
            stood = record(model, processor, pages, own, gamma)
            ratio = sum(stood) / (gamma * len(stood))
            yield f"{name}, gamma {gamma}", {"gammas": [gamma], "accepted": stood, "acceptance": round(ratio, 4)}


def run(out: Path, pages: int = PAGES) -> dict[str, Any]:
    """Record traces on the bundled model and its evaluation pages."""
    from transformers import AutoModelForImageTextToText, AutoProcessor

    from headscope.resources import find
    from headscope.scores import HeadScores

    folder = find("data", "reader")
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()
    scores = HeadScores.load(find("scores", "reader-22m.json"))
    chosen = list(bundled("evaluation"))[:pages]
    found: dict[str, Any] = {}
    for name, trace in traces(model, AutoProcessor.from_pretrained(folder), chosen, scores):
        found[name] = trace
        print(name, trace["acceptance"], len(trace["accepted"]), flush=True)
    document = {"bench": "trace", **provenance(model.device), "pages": pages, "traces": found}
    write_atomically(out, json.dumps(document, indent=1) + "\n")
    return document


if __name__ == "__main__":
    run(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else PAGES)
