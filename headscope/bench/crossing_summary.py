"""What a crossing campaign says: speed-ups beside bounds, crossings beside predictions, baselines judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from headscope.accounting.calibration import Calibration
from headscope.accounting.cell import Cell
from headscope.accounting.crossover import Keep
from headscope.accounting.ledger import Account
from headscope.accounting.prediction import Prediction, predict
from headscope.bench.blocks import interval, said, zero
from headscope.bench.cells import Row, account_of

Branch = tuple[float, float]  # keep_act, keep_kv


def of(document: Mapping[str, Any], calibration: Calibration | None = None) -> dict[str, Any]:
    """Derive everything from a campaign's cells. calibration: what its crossings are predicted from."""
    settings = document["settings"]
    accounts = {
        shape: account_of(shape, settings["layers"], settings["dtype"])
        for shape in dict.fromkeys(row["shape"] for row in (*document["cells"], *document["baseline_cells"]))
    }
    predicted = [] if calibration is None else list(_predictions(document, accounts, calibration))
    return {
        "predictions": [each.to_json() for each in predicted],
        "speed_ups": [row for shape in accounts for row in speed_ups(document["cells"], accounts[shape])],
        "crossings": [
            row
            for shape in accounts
            for act, kv in settings["pairs"]
            if (row := _crossing(document["cells"], accounts[shape], (act, kv), predicted)) is not None
        ],
        "baselines": baselines(document["baseline_cells"], accounts, document["copy_tb_per_s"]),
    }


def _predictions(
    document: Mapping[str, Any], accounts: Mapping[str, Account], calibration: Calibration
) -> Iterable[Prediction]:
    """Predict each crossing; ValueError where the calibration holds a cell of the campaign."""
    own = [Cell.of(row) for row in (*document["cells"], *document["baseline_cells"])]
    rule: dict[str, Any] = {"campaign": document["campaign"], "cells": own, "dtype": document["settings"]["dtype"]}
    for account in accounts.values():
        for act, kv in document["settings"]["pairs"]:
            yield predict(calibration, account, Keep(act, kv), **rule)


def times(rows: Sequence[Row], shape: str) -> dict[Branch, dict[int, dict[int, float]]]:
    """Sort what was timed: by branch, context and block, in ms."""
    found: dict[Branch, dict[int, dict[int, float]]] = {}
    for row in rows:
        if row["shape"] == shape and "ms_per_token" in row:
            contexts = found.setdefault((row["keep_act"], row["keep_kv"]), {})
            contexts.setdefault(row["context"], {})[row["block"]] = row["ms_per_token"]
    return found


def advantages(rows: Sequence[Row], shape: str, act: float, kv: float) -> dict[int, dict[int, float]]:
    """Give by how much the KV branch is faster than the projection branch, by block and context; ms."""
    found = times(rows, shape)
    projection, selection = found.get((act, 1.0), {}), found.get((1.0, kv), {})
    given: dict[int, dict[int, float]] = {}
    for context in sorted(projection.keys() & selection.keys()):
        for block in sorted(projection[context].keys() & selection[context].keys()):
            faster = projection[context][block] - selection[context][block]
            given.setdefault(block, {})[context] = faster
    return given


def speed_ups(rows: Sequence[Row], account: Account) -> list[Row]:
    """Give each branch's speed-up over the dense step of the same block, and the bound that its bytes put on it.

    above_bound: the mean is above the bound, so the dense baseline is not at its best; certain: its interval is too.
    """
    found = times(rows, account.name)
    dense = found.get((1.0, 1.0), {})
    given = []
    for (act, kv), contexts in found.items():
        for context in sorted(contexts.keys() & dense.keys()):
            blocks = sorted(contexts[context].keys() & dense[context].keys())
            ratios = [dense[context][block] / contexts[context][block] for block in blocks]
            if not ratios:
                continue
            latency = interval([contexts[context][block] for block in blocks])
            row = {"shape": account.name, "context": context, "keep_act": act, "keep_kv": kv, "blocks": len(blocks)}
            row["branch"] = Cell.of(row | {"batch": 1, "dtype": ""}).branch
            row |= {"ms_per_token": said(latency)}
            if (act, kv) != (1.0, 1.0):
                most = _bound(account, context, act, kv)
                mean, low, _ = bounds = interval(ratios)
                row |= {"speed_up": said(bounds), "bound": round(most, 5)}
                row |= {"above_bound": mean > most, "certain": low > most}
            given.append(row)
    return given


def _bound(account: Account, context: int, act: float, kv: float) -> float:
    return replace(account, context=context, keep=Keep(act, kv)).bounds["both"]


def _crossing(rows: Sequence[Row], account: Account, pair: Branch, predicted: Sequence[Prediction]) -> Row | None:
    """Give where a pair crosses in the mean of the blocks, and the interval of the blocks' own crossings."""
    by_block = advantages(rows, account.name, *pair)
    if not by_block:
        return None
    most = max(map(len, by_block.values()))
    by_block = {at: block for at, block in by_block.items() if len(block) == most}  # others were cut off
    shared = set.intersection(*(set(block) for block in by_block.values()))
    points = {context: interval([block[context] for block in by_block.values()]) for context in sorted(shared)}
    turns = [zero(block) for block in by_block.values()]
    crossed = [turn for turn in turns if turn is not None]
    whole = zero({context: mean for context, (mean, _, _) in points.items()})
    bounds = said(interval(crossed), 1) if len(crossed) == len(turns) else {"low": None, "high": None}
    guess = next((at for at in predicted if (at.shape, at.keep_act, at.keep_kv) == (account.name, *pair)), None)
    tokens = None if guess is None else guess.tokens
    return {
        "shape": account.name,
        "keep_act": pair[0],
        "keep_kv": pair[1],
        "byte_tokens": replace(account, keep=Keep(*pair)).crossover_tokens,
        "predicted_tokens": tokens,
        "measured_tokens": None if whole is None else round(whole, 1),
        "low": bounds["low"],
        "high": bounds["high"],
        "off_tokens": None if whole is None or tokens is None else round(whole - tokens, 1),
        "blocks": len(turns),
        "advantages_ms": [{"context": context} | said(bounds) for context, bounds in points.items()],
    }


def baselines(rows: Sequence[Row], accounts: Mapping[str, Account], copy_tb_per_s: float) -> list[Row]:
    """Give, for each attention, how much faster the window is than the whole cache, and whether bytes allow that."""
    found: dict[tuple[str, str, int], dict[float, Row]] = {}
    for row in rows:
        if "ms_per_token" in row:
            found.setdefault((row["shape"], row["attention"], row["context"]), {})[row["keep_kv"]] = row
    given = []
    for (shape, attention, context), cells in found.items():
        dense = cells.get(1.0)
        for kv, row in cells.items():
            if dense is None or kv == 1.0:
                continue
            most = _bound(accounts[shape], context, 1.0, kv)
            faster = dense["ms_per_token"] / row["ms_per_token"]
            given.append(
                {
                    "shape": shape,
                    "attention": attention,
                    "context": context,
                    "keep_kv": kv,
                    "dense_ms": dense["ms_per_token"],
                    "window_ms": row["ms_per_token"],
                    "speed_up": round(faster, 4),
                    "bound": round(most, 4),
                    "above_bound": faster > most,
                    "dense_of_copy": round(dense["tb_per_s"] / copy_tb_per_s, 4),
                }
            )
    return given
