"""The sweep: how well a model reads on smaller and smaller caches, for every rule, selection and budget."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import product
from typing import Any

from headscope.attach import compress
from headscope.budget import allocate
from headscope.evaluate.ablation import Condition, Outcome
from headscope.evaluate.answers import answer_pages
from headscope.evaluate.words import page_text, words_right
from headscope.families import geometry
from headscope.page import Page
from headscope.page.image import decode
from headscope.scores import HeadScores
from headscope.select import Selection, find_selection


@dataclass(frozen=True)
class Setting:
    """One point of a sweep. per_head: prompt tokens that a head keeps on average, the window included.

    rule_settings, select_settings: what the rule and the selection take beyond that, such as seed or pool.
    """

    rule: str
    select: str
    per_head: int
    window: int = 16
    rule_settings: dict[str, Any] = field(default_factory=dict)
    select_settings: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The setting as text: the same for the same setting, in every run."""
        return json.dumps(asdict(self), sort_keys=True)

    @property
    def keywords(self) -> dict[str, Any]:
        """What `allocate` takes."""
        return {"rule": self.rule, "per_head": self.per_head, "window": self.window, **self.rule_settings}


@dataclass(frozen=True)
class Point:
    """How a model read under a setting. kv_bytes: of one page's kept prompt tokens, in the model's dtype."""

    setting: Setting
    kv_bytes: int
    outcome: Outcome

    def to_json(self) -> dict[str, Any]:
        """Give all of it as plain data."""
        read = self.outcome.to_json()
        return {
            **asdict(self.setting),
            "kv_bytes": self.kv_bytes,
            **{name: read[name] for name in ("accuracy", "interval", "pages")},
        }


def settings(
    rules: Sequence[str],
    selections: Sequence[str],
    per_head: Sequence[int],
    *,
    prompt: int,
    window: int = 16,
    pool: int = 5,
    seeds: int = 5,
) -> list[Setting]:
    """List the points: the full cache, then every rule x selection x budget; the rule `random` once for each seed.

    prompt: tokens of a page's prompt, which the full cache keeps. seeds: at least 1.
    """
    if seeds < 1:
        raise ValueError(f"`seeds` must be at least 1, got {seeds}")
    points = [Setting("full", "observation_window", prompt, window)]
    for rule, select, kept in product(rules, selections, per_head):
        extra = {"pool": pool} if select == "observation_window" else {}
        for seed in range(seeds) if rule == "random" else (None,):
            points.append(Setting(rule, select, kept, window, {} if seed is None else {"seed": seed}, extra))
    return points


def sweep(
    model: Any,
    processor: Any,
    pages: Sequence[Page],
    scores: HeadScores,
    points: Iterable[Setting],
    *,
    question: str = "Read the text.",
    max_new_tokens: int = 320,
    batch: int = 20,
) -> Iterator[Point]:
    """Yield how a model reads pages at each point of a sweep.

    Raises ValueError, before anything is read, for a page whose text is not known and for a point that cannot be.
    """
    texts = [page_text(page) for page in pages]
    images = [decode(page.source, name=page.name) for page in pages]
    prompt = prompt_tokens(processor, images[0], question)
    plans = [(point, _select(point), _kv_bytes(model, scores, prompt, point.keywords)) for point in points]
    for point, select, kv_bytes in plans:
        with compress(model, scores=scores, select=select, **point.keywords):
            answers = answer_pages(model, processor, images, question, max_new_tokens=max_new_tokens, batch=batch)
        read = tuple(words_right(*pair) for pair in zip(texts, answers, strict=True))
        yield Point(point, kv_bytes, Outcome(Condition(point.rule), read))


def _select(point: Setting) -> Selection:
    return partial(find_selection(point.select, point.window), **point.select_settings)


def prompt_tokens(processor: Any, image: Any, question: str) -> int:
    """Give the length of the prompt that asks a question about a page."""
    from headscope.probing.prompt import ask

    return int(ask(processor, [image], question)["input_ids"].shape[1])


def _kv_bytes(model: Any, scores: HeadScores, prompt: int, keywords: dict[str, Any]) -> int:
    """Give the bytes that one page's prompt keeps: the rule `adaptive` spends what `uniform` does."""
    known = dict(keywords)
    if known["rule"] == "adaptive":
        known = {name: known[name] for name in ("per_head", "window")} | {"rule": "uniform"}
    return allocate(scores, prompt=prompt, **known).kv_bytes(model.dtype, geometry(model.config).head_dim)
