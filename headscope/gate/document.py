"""The document: what a result file holds of a verdict, and the dense part of one read back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headscope.gate.perplexity import Block
from headscope.gate.placement import Answer
from headscope.gate.run import Measured
from headscope.gate.suite import Suite
from headscope.gate.verdict import Verdict

FORMAT = "headscope.gate/1"


def to_document(suite: Suite, dense: Measured, configured: Measured, verdict: Verdict) -> dict[str, Any]:
    """Give everything as plain data: the verdict, the protocol, the losses of each window, each placement's answers."""
    return {
        "format": FORMAT,
        **verdict.to_json(),
        "protocol": suite.protocol,
        "windows": [
            {
                "name": window.name,
                "tokens": [block.tokens for block in dense.windows[window.name]],
                "dense": [block.loss for block in dense.windows[window.name]],
                "configured": [block.loss for block in configured.windows[window.name]],
            }
            for window in suite.windows
        ],
        "placements": [
            placement.to_json()
            | {"dense": _answer(dense.answers[placement.key]), "configured": _answer(configured.answers[placement.key])}
            for placement in suite.placements
        ],
    }


def dense_part(document: Mapping[str, Any], suite: Suite, model: Mapping[str, Any]) -> Measured:
    """Take the dense measurements of an earlier result.

    Raises ValueError for what is no such result, or one of another model, dtype or suite.
    """
    if document.get("format") != FORMAT:
        raise ValueError(f"`dense` must be a result file of `headscope gate`, got format {document.get('format')!r}")
    for name, here in (*model.items(), ("protocol", suite.protocol)):
        if document.get(name) != here:
            raise ValueError(f"`dense` must come from the same {name}: it has {document.get(name)}, here it is {here}")
    windows = {
        at["name"]: tuple(Block(*pair) for pair in zip(at["dense"], at["tokens"], strict=True))
        for at in document["windows"]
    }
    given = [at["dense"] for at in document["placements"]]
    keys = [placement.key for placement in suite.placements]
    return Measured(windows, {key: Answer(**answer) for key, answer in zip(keys, given, strict=True)})


def _answer(answer: Answer) -> dict[str, Any]:
    return {"text": answer.text, "right": answer.right, "distractor": answer.distractor}
