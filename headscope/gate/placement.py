"""A placement: something hidden at a depth of a prompt, and the question that only it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headscope.gate.decoding import Inputs

DEPTHS = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class Placement:
    """One thing to find.

    test: of which test. depth: 0..1, where in the prompt it lies. trial: which of several at that depth. expected: what
    an answer must say, and distractors what it must not. inputs: makes the prompt. says: whether an answer's text says
    one of them. position: the token it begins at, where that is known.
    """

    test: str
    depth: float
    trial: int
    expected: str
    distractors: tuple[str, ...]
    inputs: Callable[[], Inputs] = field(repr=False, compare=False)
    says: Callable[[str, str], bool] = field(repr=False, compare=False)
    max_new_tokens: int = 32
    position: int | None = None

    @property
    def key(self) -> str:
        """The placement as text, the same in every run."""
        return f"{self.test} {self.depth} {self.trial}"

    def judge(self, text: str) -> Answer:
        """Say what an answer is worth."""
        right = self.says(text, self.expected)
        return Answer(text, right, not right and any(self.says(text, other) for other in self.distractors))

    def to_json(self) -> dict[str, Any]:
        """Give what a result file says of it."""
        return {"test": self.test, "depth": self.depth, "trial": self.trial, "expected": self.expected} | (
            {} if self.position is None else {"position": self.position}
        )


@dataclass(frozen=True)
class Answer:
    """What a model said. right: it is what was asked for. distractor: it is another of the hidden things."""

    text: str
    right: bool
    distractor: bool


def check(depths: tuple[float, ...], each: int) -> None:
    """Refuse depths outside the prompt and fewer than one placement at each."""
    if not depths or len(set(depths)) != len(depths) or not all(0 <= depth <= 1 for depth in depths):
        raise ValueError(f"`depths` must be different numbers from 0 to 1, at least one, got {list(depths)}")
    if each < 1:
        raise ValueError(f"`each` must be at least 1 placement at a depth, got {each}")
