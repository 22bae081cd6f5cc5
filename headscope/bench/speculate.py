"""Speculative decoding on a GPU, against context, batch and gamma: ``headscope bench speculate``.

    python -m headscope.bench.speculate OUT [COMMIT [TRACE]]

Real shapes with random weights and random caches, every step a CUDA graph of the fused runtime. Steps are measured one
by one, and what they come to at the acceptance that StD reports is computed from them; then whole rounds of the real
loop are run with an acceptance trace forced on them, beside the same number of dense steps.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessorList, MaxLengthCriteria, StoppingCriteriaList

from headscope.bench.clock import DEVICE, copy_rate
from headscope.bench.provenance import provenance
from headscope.bench.shapes import random_model
from headscope.bench.step import ROOM, Rig, dense_attentions, greedy, kv_bytes, replay_ms, step_ms
from headscope.cache.segments import Segments
from headscope.files import write_atomically
from headscope.fused.graph import Graph
from headscope.fused.step import tie_lengths
from headscope.speculate.acceptance import Accepted
from headscope.speculate.drafts import Kept, nothing_kept
from headscope.speculate.graphed import GraphedRounds
from headscope.speculate.processors import Processors
from headscope.speculate.report import Clock, Report
from headscope.speculate.rounds import Proposal
from headscope.speculate.state import State
from headscope.speculate.stops import Stops

SHAPE = "qwen2-vl-7b"
CELLS = ((1, 8192), (1, 32768), (1, 131072), (8, 8192), (8, 32768), (8, 65536), (8, 131072), (32, 8192), (32, 32768))
GAMMAS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 15)
KEPT = 1024  # StD's K + m_t
PAPER = (0.661, 0.718, 0.734, 0.818)  # accepted / proposed of StD on Qwen2-VL-7B, table 1, at gamma 9
PAPER_GAMMA = 9
EARLY = 2  # layers of the early exit: one of so many

Row = dict[str, Any]


def chance(ratio: float, gamma: int) -> float:
    """Give the chance of each next token that makes accepted / proposed at a gamma: the mean of its first powers."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        found = sum(middle**power for power in range(1, gamma + 1)) / gamma
        low, high = (middle, high) if found < ratio else (low, middle)
    return low


def accepted(each: float, gamma: int) -> float:
    """Give the accepted tokens that a round of gamma has on average, each with a chance of its own."""
    return sum(each**power for power in range(1, gamma + 1))


def verify_ms(rig: Rig, layers: list[Segments], context: int, new: int, repeats: int = 5) -> float:
    """Time a graphed pass of several tokens a row; the cache is as long in each run."""
    rows = layers[0].lengths.shape[0]
    ids = torch.ones(rows, new, dtype=torch.int64, device=DEVICE)
    positions = (context + torch.arange(new, device=DEVICE)).expand(rows, new).contiguous()
    tied = tie_lengths(layers)

    def work() -> Tensor:
        logits = rig.step(ids, positions, layers).argmax(-1)
        tied.sub_(new)
        return logits

    graph = Graph(work, layers, 0)
    for segments in layers:
        segments.room = ROOM
    return replay_ms(graph, repeats)[0]


def set_lengths(layers: list[Segments], context: int, room: int = ROOM) -> None:
    """Take a full cache back to its length."""
    for segments in layers:
        segments.lengths.fill_(context)
        segments.room = room


def steps(rig: Rig, rows: int, context: int, gammas: Sequence[int]) -> Row:
    """Time the steps of one cell: dense with each attention, verification, and a step of each draft."""
    layers, given = rig.dense(rows, context), {}
    for name, attention in dense_attentions().items():
        given[f"dense_{name}_ms"] = step_ms(rig, layers, context, attention, 7)[0]
        set_lengths(layers, context)
    row: Row = {"dense_ms": min(given.values()), **given, "dense_bytes": rig.step.stack.weight_bytes + kv_bytes(layers)}
    row["verify_ms"] = {}
    for gamma in gammas:
        row["verify_ms"][gamma] = verify_ms(rig, layers, context, gamma + 1)
        set_lengths(layers, context)
    early = layers[: len(layers) // EARLY]
    row["early_exit_ms"] = step_ms(rig, early, context, None, 7)[0]
    del layers, early
    for name, rule in (("even_ms", "uniform"), ("head_budget_ms", "sparsemm")):
        kept = rig.compressed(rows, context, KEPT, rule)
        row[name] = step_ms(rig, kept, context, None, 9)[0]
        row["kept_bytes"] = rig.step.stack.weight_bytes + kv_bytes(kept)
        del kept
    return row


def derived(row: Row) -> Row:
    """Compute what the steps come to: speed-up at the paper's acceptance, at its gamma and at the best one."""
    dense, found = row["dense_ms"], []
    for ratio in PAPER:
        each = chance(ratio, PAPER_GAMMA)
        speeds = {
            gamma: (accepted(each, gamma) + 1) * dense / (gamma * row["even_ms"] + verify)
            for gamma, verify in row["verify_ms"].items()
        }
        bounds = {
            gamma: (accepted(each, gamma) + 1) * row["dense_bytes"] / (gamma * row["kept_bytes"] + row["dense_bytes"])
            for gamma in row["verify_ms"]
        }
        best = max(speeds, key=lambda gamma: speeds[gamma])
        most = max(bounds, key=lambda gamma: bounds[gamma])
        found.append(
            {
                "acceptance": ratio,
                "each_token": round(each, 4),
                "speed_up": round(speeds[PAPER_GAMMA], 3),
                "byte_bound": round(bounds[PAPER_GAMMA], 3),
                "best_gamma": best,
                "best_speed_up": round(speeds[best], 3),
                "best_byte_bound": round(bounds[most], 3),
                "best_bound_gamma": most,
            }
        )
    return {"at_paper_acceptance": found}


@dataclass(eq=False)
class Forced(GraphedRounds):
    """The real rounds, but how many proposals stand is read from a trace: int64 [round, row]."""

    trace: Tensor = field(default_factory=lambda: torch.zeros(0))
    at: Tensor = field(default_factory=lambda: torch.zeros(1, dtype=torch.int64, device=DEVICE))

    def _accept(self, proposal: Proposal, logits: Tensor) -> Accepted:
        found = super()._accept(proposal, logits)
        stood = self.trace.index_select(0, self.at % len(self.trace))[0].clamp_max(proposal.tokens.shape[1])
        self.at += 1
        places = torch.arange(proposal.tokens.shape[1], device=DEVICE) < stood[:, None]
        tokens = torch.cat([torch.where(places, proposal.tokens, found.tokens[:, :-1]), found.tokens[:, -1:]], dim=1)
        return Accepted(tokens, stood)


def state_of(rig: Rig, rows: int, context: int, kept: list[Segments] | None, answer: int) -> State:
    """Give the state of rows whose caches hold `context` random tokens and whose next token is known."""
    ids = torch.ones(rows, context + 1 + answer + 32, dtype=torch.int64, device=DEVICE)
    return State(
        ids=ids,
        lengths=torch.full((rows,), context + 1, device=DEVICE),
        offset=torch.zeros(rows, dtype=torch.int64, device=DEVICE),
        frozen=torch.zeros(rows, dtype=torch.bool, device=DEVICE),
        whole=rig.dense(rows, context),
        kept=kept,
    )


@torch.no_grad()
def whole_rounds(rig: Rig, rows: int, context: int, gamma: int, trace: Sequence[int], rounds: int = 24) -> Row:
    """Run rounds of the real loop with a trace forced on them, and as many dense steps as they gave tokens."""
    rig = replace(rig, room=rounds * (gamma + 1) + 64)
    kept = rig.compressed(rows, context, KEPT, "sparsemm")
    state = state_of(rig, rows, context, kept, rounds * (gamma + 1))
    longest = context + 1 + rounds * (gamma + 1) + 16
    stops = Stops(StoppingCriteriaList([MaxLengthCriteria(longest)]), None, context + 1, rows, 0)
    numbers = torch.tensor(trace[: len(trace) // rows * rows], device=DEVICE).view(-1, rows)
    report = Report()
    playing = Forced(
        state,
        Kept(nothing_kept(rig.model)),
        rig.step,
        Processors(LogitsProcessorList()),
        stops,
        False,
        report,
        Clock(DEVICE),
        trace=numbers,
    )
    playing.play(gamma)
    torch.cuda.synchronize()
    before = sum(playing.lengths)
    began = time.perf_counter()
    for _ in range(rounds - 1):
        playing.play(gamma)
    torch.cuda.synchronize()
    spent, tokens = time.perf_counter() - began, sum(playing.lengths) - before
    del playing, kept
    layers = state.whole
    set_lengths(layers, context, rig.room)
    work = Graph(greedy(rig.step, layers, rows, context), layers, 1)
    dense = {"headscope": replay_ms(work, 9)[0]}
    for name, attention in dense_attentions().items():
        if name != "headscope":
            set_lengths(layers, context, rig.room)
            dense[name] = step_ms(rig, layers, context, attention, 9)[0]
    each = spent * 1e3 / (tokens / rows)
    return {
        "gamma": gamma,
        "rounds": rounds - 1,
        "acceptance": round(report.acceptance or 0.0, 4),
        "tokens_per_round": round(report.tokens_per_round or 0.0, 3),
        "draft_ms": round(report.draft_s / report.rounds * 1e3, 3),
        "verify_ms": round(report.verify_s / report.rounds * 1e3, 3),
        "ms_per_token": round(each, 3),
        "dense_ms_per_token": {name: round(ms, 3) for name, ms in dense.items()},
        "speed_up": round(min(dense.values()) / each, 3),
    }


def measure(
    cells: Sequence[tuple[int, int]] = CELLS,
    gammas: Sequence[int] = GAMMAS,
    trace: dict[str, Any] | None = None,
    layers: int | None = None,
) -> Iterator[Row]:
    """Measure all cells. layers: fewer than the shape has, for a try."""
    copy = copy_rate()
    rig = Rig.of(random_model(SHAPE, DEVICE, layers=layers))
    yield {"shape": SHAPE, "copy_tb_per_s": round(copy, 3), "weight_bytes": rig.step.stack.weight_bytes, "kept": KEPT}
    for rows, context in cells:
        cell: Row = {"batch": rows, "context": context}
        if rows * context * rig.token_bytes * 1.05 + 6e9 > torch.cuda.mem_get_info()[0]:
            yield cell | {"failed": "does not fit in the memory"}
            continue
        with torch.no_grad():
            row = steps(rig, rows, context, gammas)
        yield cell | row | derived(row)
        torch.cuda.empty_cache()
    for name, run in (trace or {}).items():
        for gamma in run["gammas"]:
            found = whole_rounds(rig, 8, 131072, gamma, run["accepted"])
            yield {"trace": name, "batch": 8, "context": 131072} | found
            torch.cuda.empty_cache()


def run(out: Path, commit: str | None = None, trace: Path | None = None, **grid: Any) -> dict[str, Any]:
    """Measure all cells and write them, after each cell anew. trace: a file of `headscope.bench.trace`."""
    if not torch.cuda.is_available():
        raise ValueError("speculation is measured on a GPU, and PyTorch sees none here; run this on a CUDA machine")
    results: dict[str, Any] = {"bench": "speculate", **provenance(DEVICE, commit), "cells": [], "whole": []}
    traces = None if trace is None else json.loads(trace.read_text(encoding="utf-8"))["traces"]
    for row in measure(trace=traces, **grid):
        if "shape" in row:
            results |= row
        else:
            results["whole" if "trace" in row else "cells"].append(row)
        print(json.dumps(row), flush=True)
        write_atomically(out, json.dumps(results, indent=1) + "\n")
    return results


if __name__ == "__main__":
    extra = sys.argv[2:]
    run(Path(sys.argv[1]), extra[0] if extra else None, Path(extra[1]) if len(extra) > 1 else None)
