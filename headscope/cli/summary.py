"""Summaries: what a verb found, as plain text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headscope.budget import Budget
    from headscope.evaluate.ablation import Outcome
    from headscope.evaluate.single import Answered
    from headscope.gate import Verdict
    from headscope.scores import HeadScores
    from headscope.speculate import Report

ROWS = 10
UNKNOWN = "unknown"


def of_scores(scores: HeadScores, rows: int = ROWS) -> str:
    """Say which heads are the best, how sure that is, and what was seen."""
    return "\n".join([table(HEADING, _best(scores, rows)), "", *totals(scores)])


def table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay out text in right-aligned columns, two blanks between them."""
    widths = [max(map(len, column)) for column in zip(heading, *rows, strict=True)]
    lines = (zip(row, widths, strict=True) for row in (heading, *rows))
    return "\n".join("  ".join(f"{cell:>{width}}" for cell, width in line) for line in lines)


HEADING = ("rank", "layer", "head", "score", "95 % interval")


def _best(scores: HeadScores, rows: int) -> list[tuple[str, ...]]:
    bounds = {(head["layer"], head["head"]): head["interval"] for head in scores.summary.get("top", [])}
    return [
        (str(rank), str(layer), str(head), number(score), interval(bounds.get((layer, head))))
        for rank, (layer, head, score) in enumerate(scores.top(rows), start=1)
    ]


def totals(scores: HeadScores) -> list[str]:
    """Say what a probe saw; nothing of what a score file does not know."""
    probe, found = scores.probe, scores.summary
    layers, heads, kv_heads = scores.geometry
    lines = [f"model {scores.model.get('id', UNKNOWN)}: {layers} layers x {heads} heads, {kv_heads} KV heads"]
    if "pages" in probe:
        cropped = f", {probe['cropped']} of them cropped away" if probe.get("cropped") else ""
        lines.append(f"pages {probe['pages']}, failed {probe['pages_failed']}; words {probe['words']}{cropped}")
        credited = ratio(probe["credited"], probe["tokens"])
        lines.append(f"answer tokens {probe['tokens']}, credited {probe['credited']} ({credited})")
    lines += [f"failed: {page.name}: {page.reason}" for page in scores.failed]
    if "split_half" in found:
        lines.append(f"rank correlation between halves of the pages: {number(found['split_half'])}")
        five, ten = share(found["share_top_5_percent"]), share(found["share_top_10_percent"])
        lines.append(f"share of the score in the top 5 % of heads: {five}; in the top 10 %: {ten}")
        key, cell = share(found["share_first_key"]), share(found["share_first_cell"])
        lines.append(f"arg maxes on sinks: {key} on the first key, {cell} on a picture's first cell")
    return lines


def of_outcome(outcome: Outcome) -> str:
    """Say how a model read under one condition."""
    condition = outcome.condition
    draw = f", draw {condition.draw + 1}" if condition.kind not in ("full", "best") else ""
    return f"{condition.kind}{draw}, {len(condition.heads)} heads silenced, {share(outcome.accuracy)} of words right"


ABLATION = ("heads silenced", "which", "draws", "words right", "95 % interval", "lowest draw", "of full")


def of_ablation(outcomes: Sequence[Outcome]) -> str:
    """Lay out how a model read, a row for each number and choice of heads, its draws taken together."""
    groups: dict[tuple[int, str], list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault((len(outcome.condition.heads), outcome.condition.kind), []).append(outcome)
    full = next(outcome.accuracy for outcome in outcomes if outcome.condition.kind == "full")
    return table(ABLATION, [_ablated(*key, drawn, full) for key, drawn in groups.items()])


def _ablated(heads: int, kind: str, drawn: Sequence[Outcome], full: float) -> tuple[str, ...]:
    whole = pooled(drawn)
    low, high = whole.interval()
    lowest = share(min(outcome.accuracy for outcome in drawn)) if len(drawn) > 1 else ""
    bounds = f"{share(low)} .. {share(high)}"
    return str(heads), kind, str(len(drawn)), share(whole.accuracy), bounds, lowest, ratio(whole.accuracy, full)


def pooled(drawn: Sequence[Outcome]) -> Outcome:
    """Add up the draws page by page, so that an interval over pages covers all of them."""
    from headscope.evaluate.words import WordsRight

    pages = zip(*(outcome.pages for outcome in drawn), strict=True)
    summed = tuple(WordsRight(sum(at.right for at in page), sum(at.total for at in page)) for page in pages)
    return replace(drawn[0], pages=summed)


def of_answer(answered: Answered) -> str:
    """Give an answer, then its speed and the bytes of its cache."""
    rate = "" if answered.tokens_per_s is None else f", then {answered.tokens_per_s:.1f} tokens/s"
    kept = f"{answered.kept_bytes} bytes kept, {ratio(answered.kept_bytes, answered.dense_bytes)} of the full cache's"
    return (
        f"{answered.text}\n\n"
        f"prompt {answered.prompt_tokens} tokens, answer {answered.tokens} tokens\n"
        f"first token after {answered.prompt_s:.2f} s{rate}\n"
        f"cache {kept} {answered.dense_bytes}{'' if answered.report is None else of_report(answered.report)}"
    )


def of_report(report: Report) -> str:
    """Say what speculation did: lines to stand behind others."""
    per_round = f"{report.tokens_per_round or 1:.2f} tokens a round"
    at = " ".join(UNKNOWN if stood is None else f"{stood:.2f}" for stood in report.by_place)
    return (
        f"\ndraft {report.draft}, gamma {report.gamma}: {report.accepted} of {report.proposed} draft tokens accepted "
        f"({ratio(report.accepted, report.proposed)}), {per_round} in {report.rounds} rounds"
        f"\naccepted at each place, once all before it were: {at or 'nothing drafted'}"
        f"\nprompt {report.prompt_s:.2f} s, draft {report.draft_s:.2f} s, verify {report.verify_s:.2f} s, rest "
        f"{report.rest_s:.2f} s; {report.path}"
    )


def of_point(point: dict[str, Any]) -> str:
    """Say how a model read at one point of a sweep."""
    seed = f", seed {point['rule_settings']['seed']}" if "seed" in point["rule_settings"] else ""
    what = f"{point['rule']}, {point['select']}, {point['per_head']} tokens a head{seed}"
    return f"{what}: {share(point['accuracy'])} of words right"


ACCEPTANCE = ("task", "draft", "tokens a head", "gamma", "prompts", "next token", "95 %", "accepted / proposed", "95 %")


def of_acceptance_point(point: dict[str, Any]) -> str:
    """Say how much of a draft's proposals stood at one setting."""
    kept = "" if point["per_head"] is None else f", {point['per_head']} tokens a head"
    what = f"{point['task']}: {point['draft']}{kept}, gamma {point['gamma'] or 'each token'}"
    return f"{what}: next token {share(point['next_token'])}, accepted {share(point['accepted_ratio'])} of the proposed"


def of_acceptance(points: Sequence[dict[str, Any]]) -> str:
    """Lay out how much of each draft's proposals stood."""
    return table(ACCEPTANCE, [_accepted(point) for point in points])


def _accepted(point: dict[str, Any]) -> tuple[str, ...]:
    kept = "" if point["per_head"] is None else str(point["per_head"])
    shown = []
    for name in ("next_token", "accepted_ratio"):
        low, high = point[f"{name}_interval"]
        shown += [share(point[name]), f"{share(low)} .. {share(high)}"]
    return point["task"], point["draft"], kept, str(point["gamma"] or "each"), str(point["prompts"]), *shown


SWEEP = (
    "rule",
    "selection",
    "tokens a head",
    "KB a page",
    "seeds",
    "words right",
    "95 % interval",
    "lowest",
    "of full",
)


def of_sweep(points: Sequence[dict[str, Any]]) -> str:
    """Lay out a sweep, a row for each rule, selection and budget, the seeds of a rule taken together."""
    groups: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for point in points:
        groups.setdefault((point["rule"], point["select"], point["per_head"]), []).append(point)
    full = next(point["accuracy"] for point in points if point["rule"] == "full")
    return table(SWEEP, [_swept(group, full) for group in groups.values()])


def _swept(group: Sequence[dict[str, Any]], full: float) -> tuple[str, ...]:
    from headscope.evaluate.ablation import Condition, Outcome
    from headscope.evaluate.words import WordsRight

    read = [Outcome(Condition(at["rule"]), tuple(WordsRight(*page) for page in at["pages"])) for at in group]
    whole, first = pooled(read), group[0]
    low, high = whole.interval()
    lowest = share(min(outcome.accuracy for outcome in read)) if len(read) > 1 else ""
    size = f"{first['kv_bytes'] / 1024:.0f}"
    shown = (share(whole.accuracy), f"{share(low)} .. {share(high)}", lowest, ratio(whole.accuracy, full))
    return first["rule"], first["select"], str(first["per_head"]), size, str(len(group)), *shown


RETRIEVAL = ("test", "placements", "dense", "configured", "lost", "gained", "distractors", "lost at depth")


def of_verdict(verdict: Verdict) -> str:
    """Say whether a configuration is admitted, and why not, below what was measured."""
    lines = []
    if (rise := verdict.rise) is not None:
        lines += [
            f"perplexity {rise.dense:.3f} dense, {rise.configured:.3f} configured: a rise of {rise.rise:.3f} "
            f"({rise.low:.3f} .. {rise.high:.3f}), allowed {verdict.max_rise:g}; {rise.tokens} tokens in "
            f"{rise.windows} windows"
        ]
    if verdict.tests:
        lines += ["", table(RETRIEVAL, [_retrieved(test) for test in verdict.tests]), ""]
    said = "admitted" if verdict.admitted else "not admitted"
    if verdict.certain is False:
        said += ", though the interval of the rise reaches across what is allowed"
    return "\n".join([*lines, said, *(f"- {reason}" for reason in verdict.reasons)])


def _retrieved(test: Any) -> tuple[str, ...]:
    counts = Counter(f"{placement.depth:g}" for placement in test.lost)
    lost = " ".join(f"{depth}:{count}" for depth, count in counts.items())
    numbers = (test.placements, *test.right, len(test.lost), len(test.gained), test.distractors[1])
    return test.name, *map(str, numbers), lost


def of_budget(budget: Budget, dtype: str = "bfloat16", batch: int = 1) -> str:
    """Say what a budget comes to: its shape, how tokens are spread, their bytes, and what the prompt's length did."""
    kept = budget.kept.double()
    length = "of any length" if budget.prompt is None else f"of {budget.prompt} tokens"
    settings = "".join(f", {name} {value}" for name, value in budget.settings.items())
    lines = [
        f"model {budget.model.get('id', UNKNOWN)}: {budget.layers} layers x {budget.kv_heads} KV heads",
        f"rule {budget.rule}{settings}; window {budget.window}; a prompt {length}",
        f"kept tokens a head: minimum {budget.kept.min()}, median {kept.quantile(0.5):g}, maximum {budget.kept.max()}, "
        f"mean {budget.per_head:.6g}",
        f"total {budget.total} tokens" + part_of_prompt(budget),
        f"bytes {_bytes(budget, dtype, batch)}",
    ]
    if budget.moved:
        lines.append(f"moved: {budget.moved} tokens, from heads that keep the whole prompt to others")
    if lost := of_lost(budget):
        lines.append(lost)
    return "\n".join(lines)


def of_lost(budget: Budget) -> str:
    """Say how many tokens the prompt is too short for; nothing where it is long enough."""
    return f"lost: {budget.lost} of the {budget.asked} tokens asked for find no place" if budget.lost else ""


def part_of_prompt(budget: Budget) -> str:
    """Say which part of the prompt is kept, where its length is known."""
    if budget.prompt is None:
        return ""
    return f", {share(budget.total / (budget.kept.numel() * budget.prompt))} of the prompt's"


def _bytes(budget: Budget, dtype: str, batch: int) -> str:
    if budget.model.get("head_dim") is None:
        return f"{UNKNOWN}: give head_dim=..., the numbers in a head's key"
    sequences = f" for {batch} sequences" if batch > 1 else ""
    return f"{budget.kv_bytes(dtype, batch=batch)} in {dtype}{sequences}, keys and values of the kept tokens"


def number(value: float | None) -> str:
    """Give four significant digits, trailing zeros too."""
    return UNKNOWN if value is None else f"{value:#.4g}"


def interval(bounds: Sequence[float] | None) -> str:
    """Give an interval as low .. high."""
    return UNKNOWN if bounds is None else f"{number(bounds[0])} .. {number(bounds[1])}"


def share(value: float | None) -> str:
    """Give a part of one in per cent."""
    return UNKNOWN if value is None else f"{100 * value:.1f} %"


def ratio(part: Any, whole: Any) -> str:
    """Give a part of a whole in per cent."""
    return share(part / whole if whole else None)
