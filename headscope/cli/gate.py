"""``headscope gate``: whether a configuration is admitted, by perplexity and by retrieval."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscope.cli import summary
from headscope.cli.configuration import Configuration
from headscope.cli.measure import RESULTS
from headscope.cli.model import Model
from headscope.cli.place import Place, check_writable
from headscope.files import write_atomically

if TYPE_CHECKING:
    from headscope.page import Page

NOT_ADMITTED = 3  # the exit code, with strict=true


def gate(
    place: Place,
    /,
    *,
    model: Model,
    pages: list[Page],
    select: dict[str, Any],
    keep_kv: float | None,
    per_head: int | None,
    budget_file: Path | None,
    scores: Path | None,
    rule: str,
    window: int,
    sparsity_file: Path | None,
    max_rise: float,
    tests: list[str] | None,
    text: Path | None,
    context: int,
    windows: int,
    scored: int,
    depths: list[float],
    each: int,
    pictures: list[int],
    prompt: str,
    seed: int,
    dense: Path | None,
    strict: bool,
    dtype: str,
    device: str | None,
    device_map: str | None,
    out: Path | None,
) -> None:
    """Measure the dense model and the configuration, print the verdict and write the result."""
    from headscope.bench.provenance import provenance
    from headscope.families.identity import model_identity
    from headscope.gate import build, judge, measure
    from headscope.gate.document import dense_part, to_document
    from headscope.gate.kept import Kept
    from headscope.gate.prose import read_prose
    from headscope.gate.verdict import check_max_rise

    if strict and place.folder is not None:
        raise ValueError("`strict` gives one command an exit code; leave it out of a multirun")
    check_max_rise(max_rise)
    configuration = Configuration(keep_kv, per_head, budget_file, scores, rule, window, select, sparsity_file)
    asked = out or RESULTS / f"gate-{model.label}.json"
    result, state = place.result(asked), place.state(asked)
    check_writable([result, state])
    loaded, processor = model.load_any(dtype, device, device_map)
    policy, decode = configuration.policies(model, loaded)
    suite = build(
        processor,
        tests=tests,
        prose=None if text is None else read_prose(text),
        pages=pages,
        question=prompt,
        context=context,
        scored=scored,
        count=windows,
        depths=depths,
        each=each,
        pictures=pictures,
        seed=seed,
    )
    identity = model_identity(loaded) | ({"id": model.name} if model.name else {})
    header = {"model": identity, "dtype": str(loaded.dtype).removeprefix("torch.")}
    marks = header | {"protocol": suite.protocol}
    if dense is not None:
        plain = dense_part(_read(dense), suite, header)
    else:
        plain = measure(loaded, suite, kept=Kept.open(state, marks), tell=_teller("dense"))
    described = configuration.describe()
    kept = Kept.open(state, marks | {"configuration": described})
    configured = measure(loaded, suite, policy, decode, kept=kept, tell=_teller("configured"))
    verdict = judge(suite, plain, configured, max_rise=max_rise, seed=seed)
    document = {**header, "configuration": described, **provenance(loaded.device)}
    document |= to_document(suite, plain, configured, verdict)
    write_atomically(result, json.dumps(document, indent=1, allow_nan=False) + "\n")
    state.unlink(missing_ok=True)
    print(f"\n{summary.of_verdict(verdict)}\nwrote {result}")
    if strict and not verdict.admitted:
        raise SystemExit(NOT_ADMITTED)


def _teller(which: str) -> Callable[[str], None]:
    return lambda line: print(f"{which} {line}", flush=True)


def _read(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"`dense` must be a result file of `headscope gate`, {path} is no JSON") from error
    return document if isinstance(document, dict) else {}
