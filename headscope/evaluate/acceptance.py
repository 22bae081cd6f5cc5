"""Acceptance: how often a draft's next token is the dense model's, and how much of what it proposes stands.

Three numbers, all on the dense model's own greedy answers. Next token: in rounds of gamma, how often a proposal stands
once all before it in its round do; the draft's keys and values of those before it are its own. Accepted / proposed: in
the same rounds, tokens behind the first rejection counting as proposed. Gamma 0: every token by itself, behind the
dense model's exact keys and values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from PIL import Image

from headscope.evaluate.ablation import RESAMPLES
from headscope.evaluate.strips import QUESTION, strips
from headscope.page import Page
from headscope.page.image import decode
from headscope.scores import HeadScores
from headscope.speculate import SparseToDense
from headscope.speculate.rounds import Rounds
from headscope.speculate.state import make_room

TASKS = ("page", "pictures")
KEPT = ("head_budget", "text_guided", "observation_window", "sinks_and_recent")  # drafts with a budget
OTHERS = ("early_exit", "prompt_lookup")


@dataclass(frozen=True)
class Setting:
    """One measurement.

    task: page (`Read the text.` of each page) or pictures (`Read all pictures.` of strips). gamma: draft tokens of a
    round; 0: every token by itself. per_head: kept prompt tokens on average, None for drafts that have no budget.
    settings: the draft's own beyond these.
    """

    task: str
    draft: str
    per_head: int | None
    gamma: int
    window: int | None = 16
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The setting as text: the same for the same setting, in every run."""
        return json.dumps(asdict(self), sort_keys=True)


@dataclass(frozen=True)
class Point:
    """What was found.

    counts: of each prompt, draft tokens that stood, those that all before them in their round led up to, and all that
    were proposed.
    """

    setting: Setting
    counts: tuple[tuple[int, int, int], ...]

    @property
    def next_token(self) -> float:
        """How often a proposal stood once all before it in its round did; 0 where nothing was proposed."""
        return self._share(1)

    @property
    def accepted_ratio(self) -> float:
        """Accepted / proposed; 0 where nothing was proposed."""
        return self._share(2)

    def interval(self, of: int, seed: int = 0) -> tuple[float, float]:
        """Give the 95 % bootstrap interval over prompts of a number. of: 1, next token; 2, accepted / proposed."""
        counts = np.array(self.counts)
        drawn = np.random.default_rng(seed).integers(len(counts), size=(RESAMPLES, len(counts)))
        sums = counts[drawn].sum(axis=1)
        low, high = np.quantile(sums[:, 0] / np.maximum(sums[:, of], 1), [0.025, 0.975])
        return float(low), float(high)

    def to_json(self) -> dict[str, Any]:
        """Give all of it as plain data."""
        found = {
            "prompts": len(self.counts),
            "next_token": self.next_token,
            "next_token_interval": self.interval(1),
            "accepted_ratio": self.accepted_ratio,
            "accepted_ratio_interval": self.interval(2),
        }
        return asdict(self.setting) | found | {"counts": [list(each) for each in self.counts]}

    def _share(self, of: int) -> float:
        return sum(each[0] for each in self.counts) / max(1, sum(each[of] for each in self.counts))


@dataclass(frozen=True, eq=False)
class Asked:
    """A prompt: pictures, uint8 [height, width, 3] each, and a question about them."""

    images: tuple[np.ndarray, ...]
    question: str


def settings(
    tasks: Sequence[str],
    drafts: Sequence[str],
    per_head: Sequence[int],
    gammas: Sequence[int],
    *,
    window: int = 16,
    ratio: float = 0.1,
) -> list[Setting]:
    """List the measurements: every task x draft x budget x gamma. ratio: of head budgets.

    Raises ValueError for a name that there is not.
    """
    for name, given, known in (("tasks", tasks, TASKS), ("drafts", drafts, (*KEPT, *OTHERS))):
        if unknown := sorted(set(given) - set(known)):
            raise ValueError(f"`{name}` must be of {', '.join(known)}, got {unknown[0]!r}")
    points = []
    for task in tasks:
        for draft in drafts:
            own = {"ratio": ratio} if draft == "head_budget" else {}
            for kept in per_head if draft in KEPT else (None,):
                at = window if draft in KEPT else None
                points += [Setting(task, draft, kept, gamma, at, own) for gamma in gammas]
    return points


def prompts(task: str, pages: Sequence[Page], count: int | None = None) -> list[Asked]:
    """Make a task's prompts. count: of pictures' prompts; None: as many as there are pages."""
    if task == "page":
        return [Asked((decode(page.source, name=page.name),), "Read the text.") for page in pages]
    return [Asked(made.images, QUESTION) for made in strips(pages, count or len(pages))]


def measure(
    model: Any,
    processor: Any,
    asked: Sequence[Asked],
    scores: HeadScores,
    points: Sequence[Setting],
    *,
    batch: int = 10,
    max_new_tokens: int = 400,
) -> Iterator[Point]:
    """Yield what is found at each setting of one task, on its prompts."""
    for point in points:
        decoder = _decoder(point, scores)
        counts: list[tuple[int, int, int]] = []
        for first in range(0, len(asked), batch):
            inputs = _inputs(model, processor, asked[first : first + batch])
            model.generate(
                **inputs, do_sample=False, num_beams=1, max_new_tokens=max_new_tokens, custom_generate=decoder
            )
            counts += [(stood, reached, proposed) for stood, reached, proposed in decoder.counts]
        yield Point(point, tuple(counts))


class Counted(SparseToDense):
    """Counts for each row what `Point` holds of it."""

    counts: list[list[int]]

    def play(self, rounds: Rounds, gamma: int, observer: Any = None) -> Any:
        """Play a round; see `Rounds.play`."""
        going = rounds.going
        played = rounds.play(gamma, observer)
        self.note(rounds, {row: each for row, *each in zip(going, played.accepted, played.offered, strict=True)})
        return played

    def note(self, rounds: Rounds, found: dict[int, list[int]]) -> None:
        """Count a round. found: of each row that went on, how many stood of how many."""
        if rounds.report.rounds == 1:
            self.counts = [[0, 0, 0] for _ in range(rounds.state.rows)]
        for row, (stood, offered) in found.items():
            for place, number in enumerate((stood, min(stood + 1, offered), offered)):
                self.counts[row][place] += number


class EachToken(Counted):
    """Drafts one token at each place of the dense model's answer, its own exact tail behind it, and takes none."""

    def play(self, rounds: Rounds, gamma: int, observer: Any = None) -> Any:
        """Draft a token, compare it with the dense model's, and go on with that."""
        make_room(rounds.state.layers(), 1)
        drafted = rounds.propose(1).tokens[:, 0]
        going, places = rounds.going, torch.tensor(rounds.lengths, device=drafted.device)
        played = rounds.play(0)
        stands = (rounds.state.ids.gather(1, places[:, None])[:, 0] == drafted).tolist()
        self.note(rounds, {row: [int(stands[row]), 1] for row in going})
        return played


def _decoder(point: Setting, scores: HeadScores) -> Counted:
    own = dict(point.settings)
    if point.per_head is not None:
        own |= {"per_head": point.per_head, "window": point.window}
    if point.draft == "head_budget":
        own["scores"] = scores
    return Counted(point.draft, gamma=point.gamma, **own) if point.gamma else EachToken(point.draft, gamma=1, **own)


def _inputs(model: Any, processor: Any, asked: Sequence[Asked]) -> Any:
    """Give the inputs of a batch, padded on the left."""
    texts = []
    for prompt in asked:
        content = [{"type": "image"} for _ in prompt.images] + [{"type": "text", "text": prompt.question}]
        texts.append(processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True))
    return processor(
        text=texts,
        images=[[Image.fromarray(image) for image in prompt.images] for prompt in asked],
        padding=True,
        padding_side="left",
        add_special_tokens=not texts[0].startswith(processor.tokenizer.bos_token or texts[0]),
        return_tensors="pt",
    ).to(model.device, dtype=model.dtype)
