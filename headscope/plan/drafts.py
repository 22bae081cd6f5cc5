"""Drafts as an option: speculation at a given acceptance, from measured steps where there are any, else from bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headscope.accounting.crossover import Keep
from headscope.accounting.speculation import best_gamma, speed_up
from headscope.plan.evidence import Evidence
from headscope.plan.option import DENSE, Option
from headscope.plan.results import Results
from headscope.plan.speed import Speed


def speculation(speed: Speed, results: Results, acceptance: float, most: int) -> list[Option]:
    """Give the option to speculate with the best number of draft tokens; none where plain decoding wins.

    acceptance: the chance that the next draft token is accepted.
    """
    account, dense = speed.account, speed.of(DENSE)[0]
    gamma, ms, told, kept = _by_steps(speed, results, acceptance) or _by_account(speed, acceptance, most, dense)
    if not gamma or ms >= dense:
        return []
    held = account.memory.total + account.memory.kv * kept / account.context
    return [
        Option(
            keep=Keep(1.0, min(1.0, kept / account.context)),
            gamma=gamma,
            ms=ms,
            memory_bytes=held,
            lossless=True,
            admitted=True,
            fits=None if speed.gpu.memory_bytes is None else held < speed.gpu.memory_bytes,
            speed=told,
            quality=Evidence("account", f"the dense model's own answers, at an acceptance of {acceptance:g} as given"),
            memory=Evidence("account", "weights, the whole cache and the drafts'; activations come on top"),
        )
    ]


def _by_account(speed: Speed, acceptance: float, most: int, dense: float) -> tuple[int, float, Evidence, int]:
    """Put steps together from bytes and, where there is a calibration, kernel costs; the dense step's time is known."""
    costs = speed.account.costs
    keep = Keep(1.0, min(1.0, costs.kept / costs.context))
    draft, plain = speed.predicted(costs.draft, keep), speed.predicted(costs.dense, DENSE)
    at = f"at an acceptance of {acceptance:g}, drafts on {costs.kept} tokens"
    if draft is None or plain is None:
        gamma = costs.best_gamma(acceptance, most)
        told = Evidence("bound", f"what bytes allow over the dense step {at}")
        return gamma, dense / costs.speed_up(acceptance, gamma), told, costs.kept

    def verify(gamma: int) -> float:
        found = speed.predicted(costs.verify(gamma), DENSE)
        return found[0] / plain[0] if found is not None else costs.verify_cost(gamma)

    gamma = best_gamma(acceptance, draft[0] / plain[0], verify, most)
    faster = speed_up(acceptance, gamma, draft[0] / plain[0], verify) if gamma else 1.0
    told = Evidence("predicted", f"draft and verifying steps {at}", draft[1].file, draft[1].cell, draft[1].commit)
    return gamma, dense / faster, told, costs.kept


def _by_steps(speed: Speed, results: Results, acceptance: float) -> tuple[int, float, Evidence, int] | None:
    """Take draft and verifying steps that were measured on this GPU at this context and batch."""
    account = speed.account
    for name, document in results.of_bench("speculate"):
        here = document["hardware"].get("gpu") == speed.gpu.name and speed.same(document.get("shape", ""))
        for row in document["cells"] if here else []:
            if (row["batch"], row["context"]) == (account.batch, account.context) and "dense_ms" in row:
                gamma, ms = _best(row, acceptance)
                told = f"draft and verifying steps, put together at an acceptance of {acceptance:g}"
                cell = f"{document['shape']} at {account.context} tokens, batch {account.batch}"
                return gamma, ms, Evidence("predicted", told, name, cell, document.get("commit")), document["kept"]
    return None


def _best(row: Mapping[str, Any], acceptance: float) -> tuple[int, float]:
    dense, draft = row["dense_ms"], row["even_ms"] / row["dense_ms"]
    verify = {int(gamma): ms / dense for gamma, ms in row["verify_ms"].items()}
    best = max(verify, key=lambda gamma: speed_up(acceptance, gamma, draft, verify[gamma]))
    return best, dense / speed_up(acceptance, best, draft, verify[best])
