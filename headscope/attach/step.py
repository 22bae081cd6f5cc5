"""A step: what the attention of every layer must know about one forward pass over a prompt, or a piece of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from headscope.attach.plan import Plan
from headscope.cache import RaggedLayer
from headscope.select import SELECTIONS, Prompt, Selection, importances


@dataclass(frozen=True, eq=False)
class Policy:
    """What a `compress` block was given.

    plan: how much is kept. select: what is kept, its window included. offload: copy the prompt's dense keys and values
    to the CPU's memory before they are dropped. pieces: outside `generate`, wait for the first single token. graph:
    replay decode steps on a GPU.
    """

    plan: Plan
    select: Selection
    offload: bool
    pieces: bool
    graph: bool = False

    @property
    def pool(self) -> int:
        """Neighbours that are averaged before heads compete for tokens."""
        keywords = self.select.keywords if isinstance(self.select, partial) else {}
        return keywords.get("pool", 5)


@dataclass(frozen=True, eq=False)
class Step:
    """One forward pass over a prompt or a piece of it.

    end: logical length of the whole prompt where this pass has its last token, else None.
    valid: bool [row, token] up to now, False on padding; None: no padding. prompts: tokens of each row without padding.
    visual: bool [row, token] up to now, or None. last: queries to keep for the selection while more is to come.
    """

    policy: Policy
    end: int | None
    valid: Tensor | None
    prompts: Sequence[int]
    visual: Tensor | None
    last: int

    def finish(self, layer: RaggedLayer, index: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> None:
        """Choose and keep: query [row, head, query, dim], the last ones; key, value [row, kv, token, dim], dense.

        Tokens behind the prompt's end, which assisted generation sends along with it, are appended.
        """
        assert self.end is not None
        after = key.shape[2] - self.end
        prompt = self._prompt(layer, index, query[:, :, : query.shape[2] - after], key[:, :, : self.end], scaling)
        if self.policy.offload:
            layer.dense_copy = (key[:, :, : self.end].to("cpu"), value[:, :, : self.end].to("cpu"))
        layer.compress(prompt.key, value[:, :, : self.end], *self._chosen(prompt))
        if after:
            layer.extend(key[:, :, self.end :], value[:, :, self.end :])

    def _prompt(self, layer: RaggedLayer, index: int, query: Tensor, key: Tensor, scaling: float) -> Prompt:
        valid = None if self.valid is None else self.valid[:, : self.end].to(key.device)
        if layer.sliding_window is not None and (passed := key.shape[2] - layer.sliding_window + 1) > 0:
            valid = (
                torch.ones(key.shape[0], key.shape[2], dtype=torch.bool, device=key.device) if valid is None else valid
            )
            valid = valid & (torch.arange(key.shape[2], device=key.device) >= passed)
        visual = None if self.visual is None else self.visual[:, : self.end].to(key.device)
        return Prompt(query, key, scaling, valid, visual, index, layer.sliding_window)

    def _chosen(self, prompt: Prompt) -> tuple[Tensor, int]:
        """Give the tokens to keep, bool [row, kv, token]: as many as the plan says, or all of a short prompt.

        Gives their number as well.
        """
        kept = self.policy.plan.kept(prompt.layer, self.prompts, lambda: self._importances(prompt))
        there = torch.tensor(self._there(prompt))
        kept = kept.minimum(there[:, None])
        if bool((kept == there[:, None]).all()):
            return prompt.there[:, None].expand(-1, prompt.kv_heads, -1), int(kept.sum())
        chosen = self.policy.select(prompt, kept.to(prompt.key.device))
        if getattr(self.policy.select, "func", None) in SELECTIONS.values():
            return chosen, int(kept.sum())  # as many as asked: no need to wait for the device to count them
        found = chosen.sum(-1).cpu()
        if chosen.dtype != torch.bool or found.shape != kept.shape or bool((found != kept).any()):
            raise ValueError(
                f"`select` must choose {kept.tolist()} tokens of layer {prompt.layer} [row, kv], got {found.tolist()}"
            )
        return chosen, int(kept.sum())

    def _there(self, prompt: Prompt) -> Sequence[int]:
        """Count the tokens of each row that a layer may keep."""
        if prompt.span is None:
            return self.prompts
        return [min(length, prompt.span - 1) for length in self.prompts]

    def _importances(self, prompt: Prompt) -> list[Tensor]:
        """Give what each row's tokens matter to the KV heads, without padding: float32 [kv, prompt] on the CPU."""
        found = importances(prompt, window=self.policy.plan.window, pool=self.policy.pool).cpu()
        return [row[:, row.shape[-1] - length :] for row, length in zip(found, self.prompts, strict=True)]
