"""The ablation: how well a model reads without its best heads, and without as many others."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from headscope.evaluate.answers import answer_pages
from headscope.evaluate.mask import mask_heads
from headscope.evaluate.words import WordsRight, page_text, words_right
from headscope.page import Page
from headscope.page.image import content_hash, decode
from headscope.scores import HeadScores

Head = tuple[int, int]
RESAMPLES = 2000  # of the page bootstrap: the 95 % bounds move by about 0.1 points between seeds


@dataclass(frozen=True)
class Condition:
    """Which heads are silenced. kind: full, best, random or layer-matched. draw: which of several draws."""

    kind: str
    heads: tuple[Head, ...] = ()
    draw: int = 0


@dataclass(frozen=True)
class Outcome:
    """How a model read under a condition. pages: for each page, its words right and its words."""

    condition: Condition
    pages: tuple[WordsRight, ...]

    @property
    def accuracy(self) -> float:
        """Share of all words that are right, 0..1."""
        return sum(page.right for page in self.pages) / sum(page.total for page in self.pages)

    def interval(self, seed: int = 0) -> tuple[float, float]:
        """Give the 95 % page-bootstrap interval of the accuracy, over the pages that have words."""
        counts = np.array([[page.right, page.total] for page in self.pages if page.total])
        drawn = np.random.default_rng(seed).integers(len(counts), size=(RESAMPLES, len(counts)))
        right, total = counts[drawn].sum(axis=1).T
        low, high = np.quantile(right / total, [0.025, 0.975])
        return float(low), float(high)

    def to_json(self) -> dict[str, Any]:
        """Give all of it as plain data."""
        return {
            **asdict(self.condition),
            "accuracy": self.accuracy,
            "interval": self.interval(),
            "pages": [[page.right, page.total] for page in self.pages],
        }


def plan(scores: HeadScores, sizes: Sequence[int], draws: int, seed: int) -> list[Condition]:
    """List the conditions: nothing silenced, then for each size the best heads, random and layer-matched others."""
    if draws < 0:
        raise ValueError(f"`draws` must be at least 0, got {draws}")
    conditions = [Condition("full")]
    for size in sizes:
        heads = _all_heads(scores)
        if not 0 < 2 * size <= len(heads):
            raise ValueError(
                f"`sizes` must silence at least one head and leave as many as they silence, got {size} of {len(heads)}"
            )
        best = [(layer, head) for layer, head, _ in scores.top(size)]
        others = [head for head in heads if head not in set(best)]
        conditions.append(Condition("best", tuple(best)))
        rng = random.Random(f"{seed} {size}")
        apart = disjoint(others, size, draws, rng)
        conditions += [Condition("random", silenced, draw) for draw, silenced in enumerate(apart)]
        conditions += [Condition("layer-matched", layer_matched(best, others, rng), draw) for draw in range(draws)]
    return conditions


def disjoint(others: Sequence[Head], size: int, draws: int, rng: random.Random) -> list[tuple[Head, ...]]:
    """Draw heads without putting any back, until too few are left; then begin anew with all.

    A head that everything else needs then weighs in the mean over draws as it does among all heads, not by how often
    chance drew it.
    """
    drawn: list[tuple[Head, ...]] = []
    left: list[Head] = []
    while len(drawn) < draws:
        if len(left) < size:
            left = rng.sample(others, len(others))
        drawn.append(tuple(sorted(left[:size])))
        left = left[size:]
    return drawn


def layer_matched(best: Iterable[Head], others: Iterable[Head], rng: random.Random) -> tuple[Head, ...]:
    """Draw, for each of the best heads, another one of its layer; of the nearest layer where its own has none left."""
    left = list(others)
    drawn = []
    for layer, _ in best:
        nearest = min(abs(other - layer) for other, _ in left)
        choice = rng.choice([head for head in left if abs(head[0] - layer) == nearest])
        left.remove(choice)
        drawn.append(choice)
    return tuple(sorted(drawn))


def ablate(
    model: Any,
    processor: Any,
    pages: Sequence[Page],
    conditions: Iterable[Condition],
    *,
    question: str = "Read the text.",
    max_new_tokens: int = 320,
    batch: int = 16,
) -> Iterable[Outcome]:
    """Yield how a model reads pages under each condition.

    Raises ValueError for a page whose text is not known, and for pages without a single word.
    """
    texts = [page_text(page) for page in pages]
    if not any(text.split() for text in texts):
        raise ValueError(f"`pages` must have words to be evaluated, the {len(texts)} given have none")
    images = [decode(page.source, name=page.name) for page in pages]
    for condition in conditions:
        with mask_heads(model, condition.heads):
            answers = answer_pages(model, processor, images, question, max_new_tokens=max_new_tokens, batch=batch)
        yield Outcome(condition, tuple(words_right(*pair) for pair in zip(texts, answers, strict=True)))


def default_sizes(scores: HeadScores) -> list[int]:
    """Give a tenth of all heads, and the paper's twentieth."""
    heads = scores.layers * scores.heads
    return [max(1, round(heads / 10)), max(1, round(heads / 20))]


def pages_hash(pages: Sequence[Page]) -> str:
    """Give one hash over the pixels of all pages, in order."""
    return content_hash(
        np.array([content_hash(decode(page.source, name=page.name)) for page in pages], dtype="S64").view(np.uint8)
    )


def _all_heads(scores: HeadScores) -> list[Head]:
    return [(layer, head) for layer in range(scores.layers) for head in range(scores.heads)]
