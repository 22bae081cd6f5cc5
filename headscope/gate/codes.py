"""Codes: the passkey test, one six-digit code in a repeated sentence, and the multi-key test, four in natural text."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from headscope.gate.layout import Filler, Frame, encode, lay_out, sentence_ends
from headscope.gate.placement import DEPTHS, Placement, check

SENTENCE = " The lamp on the landing stays lit through the night, and nobody in the house asks why."
DOORS = ("red", "green", "blue", "white")
CODE = re.compile(r"(?<!\d)\d{6}(?!\d)")


def passkeys(
    tokenizer: Any, frame: Frame, *, context: int, depths: Sequence[float] = DEPTHS, each: int = 8, seed: int = 0
) -> Iterator[Placement]:
    """Yield prompts of `context` tokens that hide one code in a sentence said over and over."""
    check(tuple(depths), each)
    sentence = encode(tokenizer, SENTENCE)
    head = [*frame.before, *encode(tokenizer, "Somewhere in this text a six-digit access code is hidden. Remember it.")]
    question = "\n\nWhat is the six-digit access code? Answer with the code only."
    tail = [*encode(tokenizer, question), *frame.after]
    for depth, trial, rng in _trials("passkey", depths, each, seed):
        code = _codes(rng, 1)[0]
        needle = encode(tokenizer, f" The access code is {code}. Remember it.")
        layout = lay_out(head, tail, [(depth, needle)], Filler(sentence, [len(sentence)]), context)
        yield Placement("passkey", depth, trial, code, (), layout.inputs, says, position=layout.positions[0])


def multikeys(
    tokenizer: Any,
    frame: Frame,
    text: Sequence[int],
    *,
    context: int,
    depths: Sequence[float] = DEPTHS,
    each: int = 8,
    seed: int = 0,
) -> Iterator[Placement]:
    """Yield prompts of `context` tokens that hide four codes in natural text (ids) and ask for one of them.

    The asked-for code lies at the placement's depth, the others at three other depths, another one left out each time.
    """
    check(tuple(depths), each)
    head = [*frame.before, *encode(tokenizer, "Four access codes are hidden in this text. Remember them.\n\n")]
    filler = partial(Filler, text, sentence_ends(tokenizer, text))
    for depth, trial, rng in _trials("multikey", depths, each, seed):
        doors, codes = rng.sample(DOORS, len(DOORS)), _codes(rng, len(DOORS))
        needles = [
            (at, encode(tokenizer, f" The access code of the {door} door is {code}."))
            for at, door, code in zip((depth, *_others(depth, trial)), doors, codes, strict=True)
        ]
        question = f"\n\nWhat is the access code of the {doors[0]} door? Answer with the code only."
        tail = [*encode(tokenizer, question), *frame.after]
        layout = lay_out(head, tail, needles, filler(rng.randrange(len(text))), context)
        yield Placement(
            "multikey", depth, trial, codes[0], tuple(codes[1:]), layout.inputs, says, position=layout.positions[0]
        )


def says(text: str, code: str) -> bool:
    """Whether the first number of exactly six digits in an answer is a code."""
    found = CODE.search(text)
    return found is not None and found.group() == code


def _trials(test: str, depths: Sequence[float], each: int, seed: int) -> Iterator[tuple[float, int, random.Random]]:
    for depth in depths:
        for trial in range(each):
            yield depth, trial, random.Random(f"{seed} {test} {depth} {trial}")


def _codes(rng: random.Random, count: int) -> list[str]:
    return [str(code) for code in rng.sample(range(100_000, 1_000_000), count)]


def _others(depth: float, trial: int) -> list[float]:
    """Choose three depths that are not this one."""
    apart = sorted(DEPTHS, key=lambda other: abs(other - depth))[-4:]
    left_out = apart[trial % len(apart)]
    return [other for other in apart if other != left_out]
