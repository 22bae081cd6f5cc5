"""The verbs: which exist, the config of each, and the function that runs it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence

from headscope.cli.near import hint

VERBS = {
    "probe": "headscope.cli.probe:probe",
    "allocate": "headscope.cli.allocate:allocate",
    "merge": "headscope.cli.scores:merge",
    "import": "headscope.cli.scores:import_scores",
    "export": "headscope.cli.export:export",
    "diff": "headscope.cli.scores:diff",
    "report": "headscope.cli.report:report",
    "generate": "headscope.cli.generate:generate",
    "bytes": "headscope.cli.bytes:step_bytes",
    "bytes calibrate": "headscope.cli.calibrate:calibrate",
    "plan": "headscope.cli.plan:plan",
    "sparsify": "headscope.cli.sparsify:sparsify",
    "evaluate ablation": "headscope.cli.measure:ablation",
    "evaluate sweep": "headscope.cli.sweep:sweep",
    "evaluate acceptance": "headscope.cli.acceptance:acceptance",
    "gate": "headscope.cli.gate:gate",
    "bench crossing": "headscope.cli.crossing:crossing",
    "bench quality-budget": "headscope.cli.quality:quality_budget",
    "bench probe": "headscope.cli.bench:probe",
    "bench decode": "headscope.cli.bench:decode",
    "bench memory": "headscope.cli.bench:memory",
    "bench kernels": "headscope.cli.bench:kernels",
    "bench linear": "headscope.cli.bench:linear",
}


def pop(words: Sequence[str]) -> tuple[str, list[str]]:
    """Take the verb, of one word or two, from the front of the command line."""
    for count in (2, 1):
        if (verb := " ".join(words[:count])) in VERBS:
            return verb, list(words[count:])
    first = words[0]
    if begun := family(first):
        known = [verb for verb in VERBS if verb.startswith(begun)]
        raise ValueError(f"`{first}` needs a second word; there are: {', '.join(known)}")
    raise ValueError(f"`{first}` is not a verb{hint(first, VERBS)}")


def family(first: str) -> str:
    """Give the first word of two-word verbs with a space behind it, else nothing."""
    return f"{first} " if any(verb.startswith(f"{first} ") for verb in VERBS) else ""


def config(verb: str) -> str:
    """Name the verb's root config, without ``.yaml``."""
    return verb.replace(" ", "-")


def function(verb: str) -> Callable[..., None]:
    """Import what runs the verb."""
    module, _, name = VERBS[verb].partition(":")
    return getattr(importlib.import_module(module), name)
