"""A suite: everything a model is asked at the gate, the same for the dense model and for each configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from headscope.evaluate.ablation import pages_hash
from headscope.gate.codes import multikeys, passkeys
from headscope.gate.layout import Frame, frame
from headscope.gate.pictures import key_values, pages_to_score, read_pictures
from headscope.gate.placement import DEPTHS, Placement
from headscope.gate.prose import Prose, Window, read_prose, windows
from headscope.page import Page

TEXT_TESTS = ("perplexity", "passkey", "multikey")
TESTS = (*TEXT_TESTS, "pictures", "keys")


@dataclass(frozen=True)
class Suite:
    """windows: tokens to score. placements: things to find. text: ids of an answer -> its text.

    protocol: what a result file says of it; two suites with the same protocol ask the same.
    """

    windows: Sequence[Window]
    placements: Sequence[Placement]
    text: Callable[[Sequence[int]], str]
    protocol: dict[str, Any] = field(default_factory=dict)


def build(
    processor: Any,
    *,
    tests: Sequence[str] | None = None,
    prose: Prose | None = None,
    pages: Sequence[Page] = (),
    question: str = "Read the text.",
    context: int = 1024,
    scored: int = 512,
    count: int = 8,
    depths: Sequence[float] = DEPTHS,
    each: int = 8,
    pictures: Sequence[int] = (16,),
    seed: int = 0,
) -> Suite:
    """Build what a model is asked.

    processor: a vision model's processor, or a text model's tokenizer. tests: of `perplexity`, `passkey`, `multikey`,
    `pictures` and `keys`; None: all that the model can be asked. prose: text to score and to hide codes in; None: the
    novel that ships. A vision model scores the texts of `pages` behind `question`, unless `prose` is given.
    context: tokens of a text prompt. scored: tokens scored in each of `count` windows. each: placements at each depth.
    pictures: how many pictures a prompt of `Read picture k.` has, a test for each number.
    """
    vision = hasattr(processor, "image_processor")
    chosen = _chosen(tests, vision)
    tokenizer = processor.tokenizer if vision else processor
    protocol: dict[str, Any] = {"tests": list(chosen), "seed": seed}
    scored_windows: list[Window] = []
    by_pages = vision and prose is None
    text = read_prose() if prose is None else prose
    ids = text.ids(tokenizer) if {"multikey"} & set(chosen) or ("perplexity" in chosen and not by_pages) else []
    if "perplexity" in chosen and by_pages:
        scored_windows = pages_to_score(processor, list(pages), question, scored)
        protocol |= {"pages": len(pages), "pages_hash": pages_hash(pages), "question": question, "scored": scored}
    elif "perplexity" in chosen:
        start = _start(tokenizer)
        scored_windows = windows(ids, context=context, scored=scored, count=count, start=start)
        protocol |= {"windows": len(scored_windows), "scored": scored}
    if ids:
        protocol |= {"text": text.name, "text_sha256": text.sha256}
    if set(chosen) & set(TEXT_TESTS) - ({"perplexity"} if by_pages else set()):
        protocol |= {"context": context}
    asked: dict[str, Any] = {"depths": list(depths), "each": each, "seed": seed}
    placements = list(_placements(chosen, processor, tokenizer, ids, context, pictures, asked))
    if placements:
        protocol |= {"depths": list(depths), "each": each}
    if "pictures" in chosen:
        protocol |= {"pictures": list(pictures)}
    return Suite(scored_windows, placements, _text(tokenizer), protocol)


def _chosen(tests: Sequence[str] | None, vision: bool) -> tuple[str, ...]:
    possible = TESTS if vision else TEXT_TESTS
    chosen = possible if tests is None else tuple(dict.fromkeys(tests))
    if not chosen or not set(chosen) <= set(possible):
        kind = "a vision model" if vision else "a text model"
        raise ValueError(f"`tests` must be some of {', '.join(possible)} for {kind}, got {', '.join(chosen) or 'none'}")
    return chosen


def _placements(
    chosen: Sequence[str],
    processor: Any,
    tokenizer: Any,
    ids: Sequence[int],
    context: int,
    pictures: Sequence[int],
    asked: dict[str, Any],
) -> Iterator[Placement]:
    around = _frame(processor, tokenizer)
    if "passkey" in chosen:
        yield from passkeys(tokenizer, around, context=context, **asked)
    if "multikey" in chosen:
        yield from multikeys(tokenizer, around, ids, context=context, **asked)
    if "pictures" in chosen:
        for number in pictures:
            yield from read_pictures(processor, count=number, **asked)
    if "keys" in chosen:
        yield from key_values(processor, **asked)


def _frame(processor: Any, tokenizer: Any) -> Frame:
    return frame(tokenizer, processor if processor is not tokenizer else None)


def _start(tokenizer: Any) -> list[int]:
    """Give the ids that a tokenizer puts before a text."""
    first = tokenizer("a").input_ids[:1]
    return first if first == [tokenizer.bos_token_id] else []


def _text(tokenizer: Any) -> Callable[[Sequence[int]], str]:
    def text(ids: Sequence[int]) -> str:
        return tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)

    return text
