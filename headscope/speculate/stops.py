"""Stops: every stop rule and streamer is called once for each token, in order, as plain generation calls it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import StoppingCriteriaList
from transformers.generation.stopping_criteria import EosTokenCriteria, MaxLengthCriteria

from headscope.speculate.state import State, rewind


class Stops:
    """What ends an answer.

    Rows run ahead of each other. The stop rules see a token once all rows that go on have one there: then the batch
    looks as it does in plain generation. The end tokens and the greatest length are seen to at once, on the device.
    """

    def __init__(self, criteria: StoppingCriteriaList, streamer: Any, prompt: int, rows: int, pad: int | None) -> None:
        found = [each.eos_token_id for each in criteria if hasattr(each, "eos_token_id")]
        device = found[0].device if found else None  # a rule of one's own may lie elsewhere than generate's
        self.ends: Tensor | None = torch.cat([ids.flatten().to(device) for ids in found]) if found else None
        self.longest: int = criteria.max_length or torch.iinfo(torch.int32).max
        known = (EosTokenCriteria, MaxLengthCriteria)
        self.criteria = criteria
        self.called = streamer is not None or any(type(each) not in known for each in criteria)
        self.streamer = streamer
        self.pad = 0 if pad is None else pad
        self.prompt = prompt
        self.length = prompt  # of the answer so far, as plain generation would have it
        self.finished = [False] * rows
        self.done = False

    def cut(self, tokens: Tensor, counts: Tensor, state: State) -> tuple[Tensor, Tensor]:
        """Cut blocks at the first end token and the greatest length.

        tokens: int64 [row, new], of which the first counts [row] are to be emitted. Gives the counts, 0 for frozen
        rows, and bool [row], rows that take no more after them. Runs on the device.
        """
        counts = counts.minimum(self.longest - state.lengths)
        if self.ends is not None:
            ends = torch.isin(tokens, self.ends.to(tokens.device))
            ends &= torch.arange(tokens.shape[1], device=tokens.device) < counts[:, None]
            ended = ends.any(-1)
            counts = torch.where(ended, ends.int().argmax(-1) + 1, counts)
        else:
            ended = torch.zeros_like(state.frozen)
        counts = counts.masked_fill(state.frozen, 0)
        return counts, state.frozen | ended | (state.lengths + counts >= self.longest)

    def ended(self, tokens: Tensor) -> bool:
        """Tell whether an end token is among these, on the host."""
        return self.ends is not None and bool(torch.isin(tokens, self.ends.to(tokens.device)).any())

    def follow(self, state: State, lengths: list[int], frozen: list[bool]) -> None:
        """Go on to the shortest row that is not done, and call what is to be called on the way.

        lengths, frozen: the state's, on the host; a row that a stop rule ends is frozen and cut in both.
        """
        going = [length for length, still in zip(lengths, frozen, strict=True) if not still]
        reach = min(going, default=max(lengths))
        if not self.called:
            self.done, self.length = not going, reach
            return
        while self.length < reach and not self.done:
            self.length += 1
            self._call(state, lengths, frozen)

    def _call(self, state: State, lengths: list[int], frozen: list[bool]) -> None:
        ids = state.ids[:, : self.length]
        ended = self.criteria(ids, None).tolist()
        if self.streamer is not None:
            self.streamer.put(ids[:, -1].cpu())
        for row, end in enumerate(ended):
            if end and not self.finished[row]:
                self.finished[row] = True
                if self.ends is not None:  # without end tokens plain generation lets every row run on
                    self._freeze(row, state, lengths, frozen)
        self.done = all(self.finished)

    def _freeze(self, row: int, state: State, lengths: list[int], frozen: list[bool]) -> None:
        """Take back what a row has beyond the answer so far."""
        state.ids[row, self.length :] = self.pad
        if surplus := lengths[row] - self.length:
            taken = torch.zeros_like(state.lengths)
            taken[row] = surplus
            rewind(state.layers(), taken)
            state.lengths[row] = lengths[row] = self.length
        state.frozen[row] = frozen[row] = True


def with_stop_strings(
    criteria: StoppingCriteriaList, stop_strings: str | Sequence[str] | None, tokenizer: Any
) -> StoppingCriteriaList:
    """Add a rule that stops at strings. Raises ValueError without a tokenizer."""
    if stop_strings is None:
        return criteria
    from transformers import StopStringCriteria

    if tokenizer is None:
        raise ValueError("`tokenizer` is required with `stop_strings`; give the model's")
    given = stop_strings if isinstance(stop_strings, str) else list(stop_strings)
    return StoppingCriteriaList([*criteria, StopStringCriteria(tokenizer=tokenizer, stop_strings=given)])
