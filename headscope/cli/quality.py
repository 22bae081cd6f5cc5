"""``headscope bench quality-budget``: the fastest setting within each rise of perplexity, gated."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscope.cli.bind import bind, target
from headscope.cli.measure import RESULTS
from headscope.cli.model import Model
from headscope.cli.place import Place, check_writable
from headscope.cli.summary import interval, table

if TYPE_CHECKING:
    from headscope.accounting.crossover import Keep
    from headscope.gate.kept import Kept
    from headscope.gate.prose import Prose
    from headscope.page import Page

CALIBRATED = 0.1  # of a text, its end: for thresholds, so that they are not calibrated on what is scored
CHARACTERS = 16  # of a text, read for each token that is wanted of it
BUDGETS = ("budget", "activations", "cache", "rise", "ms", "over dense", "over best single", "refused before it")
EQUAL = ("budget", "activations", "cache", "crossover at equal quality")


def quality_budget(
    place: Place,
    /,
    *,
    model: Model,
    pages: list[Page],
    select: dict[str, Any],
    keep_act: list[float],
    keep_kv: list[float],
    max_rises: list[float],
    window: int,
    blocks: int,
    timed_context: int | None,
    times: Path | None,
    repeats: int,
    tests: list[str] | None,
    text: Path | None,
    context: int,
    windows: int,
    scored: int,
    depths: list[float],
    each: int,
    pictures: list[int],
    prompt: str,
    calibration_tokens: int,
    seed: int,
    dtype: str,
    device: str | None,
    out: Path | None,
) -> None:
    """Score and time the grid, choose, gate and time the winners again; print the table and write the result."""
    from headscope.accounting import account
    from headscope.bench.grid import GridSteps
    from headscope.bench.loaded import Loaded, LoadedSteps
    from headscope.bench.provenance import provenance
    from headscope.bench.quality_budget import Bench, run
    from headscope.bench.timer import timer_of
    from headscope.families.identity import model_identity
    from headscope.gate import build
    from headscope.gate.prose import read_prose

    asked = out or RESULTS / f"quality-budget-{model.label}.json"
    result, state = place.result(asked), place.state(asked)
    check_writable([result, state])
    known = None if times is None else GridSteps.load(times)
    prose, held_out = split(read_prose(text))
    loaded, processor = model.load_any(dtype, device, None)
    tokenizer = getattr(processor, "tokenizer", processor)
    suite = build(
        processor,
        tests=tests,
        prose=None if text is None and hasattr(processor, "image_processor") else prose,
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
    header = {"model": identity, "dtype": str(loaded.dtype).removeprefix("torch."), "select": select, "window": window}
    length = timed_context or context if known is None else known.context
    plain: dict[str, Any] = {"dtype": header["dtype"], "weight_dtype": header["dtype"]}
    counted = account(loaded.config, context=length, **plain)
    thresholds = {
        keep: calibrated(loaded, tokenizer, held_out, keep, calibration_tokens, model.name)
        for keep in sorted(set(keep_act) - {1.0})
    }
    steps: Any = known
    if known is None:
        text_cache = Loaded.of(loaded, beginning(prose, tokenizer, length))
        steps = LoadedSteps(text_cache, thresholds, timer_of(loaded.device), repeats)
    bench = Bench(
        loaded,
        suite,
        steps,
        thresholds,
        _selection(select),
        window,
        _records(state, header | {"protocol": suite.protocol, "thresholds": _levels(thresholds)}),
        partial(print, flush=True),
    )
    found = run(
        bench,
        result,
        header | provenance(loaded.device) | ({} if known is None else {"times": known.told}),
        counted,
        keep_act=keep_act,
        keep_kv=keep_kv,
        budgets=max_rises,
        blocks=blocks,
        seed=seed,
    )
    state.unlink(missing_ok=True)
    print(f"\n{told(found)}\nwrote {result}")


def split(prose: Prose) -> tuple[Prose, str]:
    """Keep the end of a text apart for calibration."""
    from headscope.gate.prose import Prose

    cut = round(len(prose.text) * (1 - CALIBRATED))
    return Prose(prose.name, prose.text[:cut]), prose.text[cut:]


def beginning(prose: Prose, tokenizer: Any, tokens: int) -> list[int]:
    """Give so many tokens of a text from its beginning, over and over if it is short."""
    from headscope.gate.prose import Prose

    ids = Prose(prose.name, prose.text[: CHARACTERS * tokens]).ids(tokenizer)
    return list(itertools.islice(itertools.cycle(ids), tokens))


def calibrated(loaded: Any, tokenizer: Any, text: str, keep: float, tokens: int, name: str | None) -> Any:
    """Calibrate thresholds on text."""
    from headscope.sparsity import calibrate, cut_text

    return calibrate(loaded, cut_text(tokenizer, text, tokens=tokens), keep, name=name)


def _levels(thresholds: dict[float, Any]) -> dict[str, Any]:
    return {f"{keep:g}": found.values.tolist() for keep, found in thresholds.items()}


def _selection(select: dict[str, Any]) -> Any:
    function = target(select.get("_target_", ""), "select")
    settings = {name: value for name, value in select.items() if name != "_target_"}
    return partial(function, **bind(function, settings, "select."))


def _records(state: Path, marks: dict[str, Any]) -> Callable[[Keep], Kept]:
    from headscope.gate.kept import Kept

    return lambda keep: Kept.open(state, marks | {"keep_act": keep.act, "keep_kv": keep.kv})


def told(document: dict[str, Any]) -> str:
    """Lay out what was chosen within each budget, and the crossovers at equal quality."""
    chosen = table(BUDGETS, [_chosen(at) for at in document["budgets"]])
    equal = table(EQUAL, [_equal(at) for at in document["equal_quality"]])
    gated = all(at["admitted"] for at in document["budgets"])
    return f"{chosen}\n\n{equal}" + ("" if gated else "\n\nthe gate admits not even the dense model: it finds nothing")


def _chosen(at: dict[str, Any]) -> tuple[str, ...]:
    return (
        f"{at['budget']:g}",
        f"{at['keep_act']:g}",
        f"{at['keep_kv']:g}",
        f"{at['rise']:.3f}",
        f"{at['ms_per_token']['mean']:.3f}",
        *(_times(at[over]) for over in ("over_dense", "over_single")),
        _refused(at["refused"]),
    )


def _times(bounds: dict[str, float | None]) -> str:
    low, high = bounds["low"], bounds["high"]
    told = f"{bounds['mean']:.2f}x"
    return told if low is None or high is None else f"{told} ({interval((low, high))})"


def _refused(refused: Sequence[dict[str, Any]]) -> str:
    return " ".join(f"{at['keep_act']:g}/{at['keep_kv']:g}" for at in refused) or "none"


def _equal(at: dict[str, Any]) -> tuple[str, ...]:
    keeps = ["none" if at[name] is None else f"{at[name]:.3f}" for name in ("keep_act", "keep_kv")]
    tokens = at["crossover_tokens"]
    return f"{at['budget']:g}", *keeps, "none" if tokens is None else f"{tokens / 1024:.1f}K"
