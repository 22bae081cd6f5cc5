"""One answer: what a model says about pictures, how fast, and on how large a cache."""

from __future__ import annotations

import inspect
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import StoppingCriteria

from headscope.budget.precision import token_bytes
from headscope.cache import RaggedCache
from headscope.families import geometry
from headscope.probing.prompt import ask
from headscope.speculate import Report, SparseToDense


@dataclass(frozen=True)
class Answered:
    """An answer. prompt_s: seconds until the first token. decode_s: from the first token to the last.

    kept_bytes: keys and values held at the end, as allocated. dense_bytes: those that a full cache would hold.
    report: of speculation, if there was any.
    """

    text: str
    prompt_tokens: int
    tokens: int
    prompt_s: float
    decode_s: float
    kept_bytes: int
    dense_bytes: int
    report: Report | None = None

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens a second after the first; None for an answer of one token."""
        return (self.tokens - 1) / self.decode_s if self.tokens > 1 else None


class Clock(StoppingCriteria):
    """Notes when each token is there; never stops anything."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.ticks: list[float] = []

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        """Note the time."""
        self.ticks.append(now(self._device))
        return torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)


def answer(
    model: Any,
    processor: Any,
    images: Sequence[np.ndarray],
    question: str,
    *,
    compressed: AbstractContextManager[Any] | None = None,
    decoder: SparseToDense | None = None,
    max_new_tokens: int = 320,
) -> Answered:
    """Answer a question about pictures (uint8 [height, width, 3]) greedily.

    compressed: an `hs.compress` block to answer in. decoder: what drafts and verifies instead of plain decoding.
    """
    inputs = ask(processor, list(images), question).to(model.device, dtype=model.dtype)
    cache = RaggedCache() if compressed is not None else None
    clock, start = Clock(model.device), now(model.device)
    with compressed if compressed is not None else nullcontext():
        own: dict[str, Any] = {} if cache is None else {cache_name(model): cache}
        own |= {} if decoder is None else {"custom_generate": decoder}
        output = model.generate(
            **inputs, **own, do_sample=False, num_beams=1, max_new_tokens=max_new_tokens, stopping_criteria=[clock]
        )
    prompt = inputs["input_ids"].shape[1]
    ids = output[0, prompt:].cpu()
    dense = _dense_bytes(model, prompt + len(ids) - 1)
    report, held = None, dense if cache is None else cache.kv_bytes
    if decoder is not None:
        report = decoder.report
        held = report.whole_bytes + report.kept_bytes
    return Answered(
        text=processor.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False),
        prompt_tokens=prompt,
        tokens=len(ids),
        prompt_s=clock.ticks[0] - start,
        decode_s=clock.ticks[-1] - clock.ticks[0],
        kept_bytes=held,
        dense_bytes=dense,
        report=report,
    )


def now(device: torch.device) -> float:
    """Give the time in seconds once the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def cache_name(model: Any) -> str:
    """Give the name by which this version of transformers takes a cache."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


def _dense_bytes(model: Any, tokens: int) -> int:
    shape = geometry(model.config)
    return tokens * shape.layers * shape.kv_heads * token_bytes(model.dtype, shape.head_dim)
