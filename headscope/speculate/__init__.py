"""Speculation: a draft on a small part of the cache, verified by the dense model, with the same output."""

from headscope.speculate.decoder import SparseToDense
from headscope.speculate.drafts import (
    DRAFTS,
    Draft,
    EarlyExit,
    Kept,
    Lookup,
    early_exit,
    find_draft,
    head_budget,
    none,
    observation_window,
    prompt_lookup,
    sinks_and_recent,
    text_guided,
)
from headscope.speculate.entry import generate
from headscope.speculate.report import Report

__all__ = [
    "DRAFTS",
    "Draft",
    "EarlyExit",
    "Kept",
    "Lookup",
    "Report",
    "SparseToDense",
    "early_exit",
    "find_draft",
    "generate",
    "head_budget",
    "none",
    "observation_window",
    "prompt_lookup",
    "sinks_and_recent",
    "text_guided",
]
