"""A run: a model measured on a whole suite under one policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headscope.gate.decoding import answer, ends, log_probs
from headscope.gate.kept import Kept
from headscope.gate.perplexity import Block, Blocks, blocks
from headscope.gate.placement import Answer
from headscope.gate.policy import Policy, dense
from headscope.gate.suite import Suite


@dataclass(frozen=True)
class Measured:
    """What a model did. windows: the losses of each window, by name. answers: what it said, by a placement's key."""

    windows: Mapping[str, Blocks] = field(default_factory=dict)
    answers: Mapping[str, Answer] = field(default_factory=dict)


def measure(
    model: Any,
    suite: Suite,
    policy: Policy = dense,
    decode: Policy = dense,
    *,
    kept: Kept | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> Measured:
    """Measure a model on a suite.

    policy: makes the block around each prompt and all that follows it, such as `lambda model: hs.compress(model, ...)`;
    entered anew for each. decode: one around the decode steps only, such as sparse activations: prompts run densely.
    kept: records of an earlier run to go on with. tell: called with a line after each window and placement.
    """
    kept = kept or Kept()
    done, total = 0, len(suite.windows) + len(suite.placements)
    windows, answers = {}, {}
    for window in suite.windows:
        if (record := kept.records.get(window.name)) is None:
            found = log_probs(model, window.inputs(), window.continuation, policy, decode)
            record = kept.keep(window.name, [[block.loss, block.tokens] for block in blocks(found.tolist())])
        windows[window.name] = tuple(Block(*pair) for pair in record)
        tell(f"{(done := done + 1)} of {total}: {window.name}")
    stop = ends(model)
    for placement in suite.placements:
        if (text := kept.records.get(placement.key)) is None:
            most = placement.max_new_tokens
            ids = answer(model, placement.inputs(), policy, decode, max_new_tokens=most, stop=stop)
            text = kept.keep(placement.key, suite.text(ids))
        answers[placement.key] = placement.judge(text)
        tell(f"{(done := done + 1)} of {total}: {placement.key}{'' if answers[placement.key].right else ', missed'}")
    return Measured(windows, answers)
