"""A layout: a prompt of an exact number of tokens, with needles at exact depths of its filler."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from headscope.gate.decoding import Inputs

MARK = "<<passage>>"


@dataclass(frozen=True)
class Frame:
    """What a chat template puts around a person's words, as ids; without a template a start token and nothing."""

    before: tuple[int, ...]
    after: tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """A prompt as ids. positions: the first token of each needle, in the order in which they were given."""

    ids: tuple[int, ...]
    positions: tuple[int, ...]

    def inputs(self) -> Inputs:
        """Give it as a model's forward takes it."""
        ids = torch.tensor([self.ids])
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


class Filler:
    """Running text that never ends: ids over and over, given in pieces that end where a sentence does."""

    def __init__(self, ids: Sequence[int], sentence_ends: Sequence[int], start: int = 0) -> None:
        """Take the ids, and in ascending order the places just behind the end of a sentence; begin at `start`."""
        self._ids, self._ends = list(ids), list(sentence_ends) or [len(ids)]
        self._at = start

    def take(self, tokens: int) -> list[int]:
        """Give so many tokens: the first of them may stand inside a sentence, the last one ends one."""
        if not tokens:
            return []
        end = self._end_behind(self._at + tokens)
        self._at = end
        return [self._ids[at % len(self._ids)] for at in range(end - tokens, end)]

    def _end_behind(self, place: int) -> int:
        """Find the first end of a sentence at a place or behind it, counting on through every round."""
        round_, at = divmod(place, len(self._ids))
        found = bisect.bisect_left(self._ends, at)
        over = found == len(self._ends)
        return (round_ + over) * len(self._ids) + self._ends[0 if over else found]


def frame(tokenizer: Any, template: Any = None) -> Frame:
    """Give what stands around a person's words. template: what has the chat template; None: the tokenizer."""
    source = tokenizer if template is None else template
    if not getattr(source, "chat_template", None):
        start = tokenizer("a").input_ids[:1]
        return Frame(tuple(start) if start == [tokenizer.bos_token_id] else (), tuple(encode(tokenizer, "\nAnswer:")))
    content: Any = MARK if source is tokenizer else [{"type": "text", "text": MARK}]
    text = source.apply_chat_template(
        [{"role": "user", "content": content}], add_generation_prompt=True, tokenize=False
    )
    before, mark, after = text.partition(MARK)
    if not mark:
        raise ValueError("the chat template must hold a person's words as they are; this one changes or drops them")
    return Frame(tuple(encode(tokenizer, before)), tuple(encode(tokenizer, after)))


def encode(tokenizer: Any, text: str) -> list[int]:
    """Give the ids of a text, none added."""
    return tokenizer(text, add_special_tokens=False).input_ids


def sentence_ends(tokenizer: Any, ids: Sequence[int]) -> list[int]:
    """Give the places just behind tokens that end a sentence."""
    closing = {token for token in set(ids) if tokenizer.decode([token]).rstrip("\"')\n ").endswith((".", "!", "?"))}
    return [at + 1 for at, token in enumerate(ids) if token in closing]


def lay_out(
    head: Sequence[int],
    tail: Sequence[int],
    needles: Sequence[tuple[float, Sequence[int]]],
    filler: Filler,
    context: int,
) -> Layout:
    """Lay out head, filler and tail, `context` tokens together, with needles in the filler.

    needles: (depth, ids) each; a needle of depth d has round(d * filler tokens) tokens of filler before it, whatever
    other needles stand there. What stands before a needle ends where a sentence does.

    Raises ValueError for a context that leaves no filler.
    """
    fixed = len(head) + len(tail) + sum(len(ids) for _, ids in needles)
    if (room := context - fixed) < 1:
        raise ValueError(
            f"`context` must hold the question and what is hidden, {fixed} tokens, and more; got {context}"
        )
    ids, given, positions = list(head), 0, [0] * len(needles)
    for at, (depth, needle) in _ordered(needles):
        ids += filler.take(round(depth * room) - given)
        given = round(depth * room)
        positions[at] = len(ids)
        ids += needle
    return Layout((*ids, *filler.take(room - given), *tail), tuple(positions))


def _ordered(needles: Sequence[tuple[float, Sequence[int]]]) -> Iterator[tuple[int, tuple[float, Sequence[int]]]]:
    yield from sorted(enumerate(needles), key=lambda entry: entry[1][0])
