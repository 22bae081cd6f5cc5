"""Replay: on a GPU the decode steps inside a block run as one CUDA graph, where the model's stack can be fused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headscope.attach.entry import find_cache
from headscope.cache import RaggedLayer
from headscope.fused import FusedStep, fuse
from headscope.fused.graph import Graph
from headscope.fused.step import tie_lengths

ROOM = 256  # tokens that a new graph has room for, unless generation is known to end before
ASKED = (
    "input_ids",
    "attention_mask",
    "position_ids",
    "use_cache",
    "return_dict",
    "logits_to_keep",
    "mm_token_type_ids",
    # before transformers 5.18 these come again with each step: they say of pictures what a step without pixels ignores
    "image_grid_thw",
    "video_grid_thw",
    "second_per_grid_ts",
    "image_sizes",
    "batch_num_images",
)


@dataclass(eq=False)
class Generation:
    """A `generate` call.

    end: logical length that it cannot pass; None: not known. checked: the replay that was found to be of the model as
    it is, and fused: False where its stack cannot be fused. Looking at all modules takes a part of a step's time, so
    that is done once a call.
    """

    end: int | None = None
    checked: Replay | None = None
    fused: bool = True


# The `generate` call that runs now; None: outside of one, where every step looks at the model anew.
generation: ContextVar[Generation | None] = ContextVar("generation", default=None)


class Replay:
    """One cache's decode step, captured. It belongs to the cache: the first layer holds it."""

    def __init__(self, step: FusedStep, layers: Sequence[RaggedLayer], ids: Tensor) -> None:
        """Make room, and capture the step for as many rows as `ids`, int64 [row, 1], has."""
        call = generation.get()
        end = None if call is None else call.end
        room = ROOM if end is None else max(1, min(ROOM, end - layers[0].get_seq_length()))
        for layer in layers:
            assert layer.segments is not None
            if layer.segments.room < room:
                layer.reserve(room)
        self._segments = [layer.segments for layer in layers if layer.segments is not None]
        self._lengths = tie_lengths(self._segments)
        self._ids, self._positions = torch.zeros_like(ids), torch.zeros_like(ids)
        self._absent = torch.zeros(ids.shape[0], 1, dtype=torch.int32, device=ids.device)
        self._step, self._marks = step, step.stack.marks
        self._graph = Graph(self._work, self._segments, 1)

    def _work(self) -> Tensor:
        logits = self._step(self._ids, self._positions, self._segments)
        self._lengths -= self._absent
        return logits

    def serves(self, layers: Sequence[RaggedLayer], ids: Tensor) -> bool:
        """Tell whether the graph still fits the cache."""
        same = all(layer.segments is own for layer, own in zip(layers, self._segments, strict=True))
        return same and ids.shape == self._ids.shape and not self._graph.stale

    def runs(self, step: FusedStep) -> bool:
        """Tell whether the graph reads the weights that a step made now would, where they lie now."""
        return step.stack.marks == self._marks

    def __call__(self, layers: Sequence[RaggedLayer], ids: Tensor, positions: Tensor, valid: Tensor | None) -> Tensor:
        """Run the step: logits [row, 1, token]. valid: bool [row, 1], False on padding, which is not held."""
        self._ids.copy_(ids)
        self._positions.copy_(positions)
        if valid is None:
            self._absent.zero_()
        else:
            self._absent.copy_(~valid)
        logits = self._graph()
        for layer in layers:
            assert layer.tokens is not None
            layer.tokens.add(1, valid)
        return logits.clone()


@contextmanager
def replayed(model: Any) -> Iterator[None]:
    """Let decode steps on a compressed cache be replayed inside the block; everything else is the model's own."""
    there, forward = vars(model).get("forward"), model.forward
    model.forward = _forward(model, forward)
    try:
        yield
    finally:
        del model.forward
        if there is not None:
            model.forward = there


def _forward(model: Any, forward: Callable[..., Any]) -> Callable[..., Any]:
    def replaying(*args: Any, **kwargs: Any) -> Any:
        cache: Any = find_cache(kwargs)
        if torch.compiler.is_compiling() or args or cache is None or not _plain_step(kwargs, cache):
            return forward(*args, **kwargs)
        layers: list[RaggedLayer] = cache.layers
        ids, positions = kwargs["input_ids"], kwargs["position_ids"]
        replay = _replay(model, layers, ids)
        if replay is None:
            return forward(*args, **kwargs)
        valid = _valid(kwargs.get("attention_mask"))
        logits = replay(layers, ids, positions[-1] if positions.ndim == 3 else positions, valid)
        return _output(kwargs, cache, logits)

    replaying.__wrapped__ = forward  # type: ignore[attr-defined]  # its signature is the model's
    return replaying


def _replay(model: Any, layers: Sequence[RaggedLayer], ids: Tensor) -> Replay | None:
    """Give the cache's step, captured anew where cache or model have changed; None where the stack is not fused."""
    first, call = layers[0], generation.get()
    if call is not None and not call.fused:
        return None
    fits = first.replay is not None and first.replay.serves(layers, ids)
    if not fits or call is None or call.checked is not first.replay:
        step = fuse(model)
        if step is None or step.stack.embedding.device != ids.device:
            first.replay = None
            if call is not None:
                call.fused = False
            return None
        if not fits or not first.replay.runs(step):
            first.replay = None  # its memory goes before the next one's comes
            first.replay = Replay(step, layers, ids)
        if call is not None:
            call.checked = first.replay
    return first.replay


def _plain_step(kwargs: dict[str, Any], cache: Any) -> bool:
    """Tell whether a call is a decode step of which nothing but logits is asked."""
    ids, positions = kwargs.get("input_ids"), kwargs.get("position_ids")
    name = next(name for name, value in kwargs.items() if value is cache)
    others = any(value is not None and key not in (*ASKED, name) for key, value in kwargs.items())
    if others or not isinstance(ids, Tensor) or not isinstance(positions, Tensor) or torch.is_grad_enabled():
        return False
    layers = getattr(cache, "layers", None)
    if not layers or not _is_whole(kwargs.get("attention_mask"), layers[0], ids):
        return False
    ragged = all(isinstance(layer, RaggedLayer) and layer.compressed and not layer.is_sliding for layer in layers)
    keeps = kwargs.get("logits_to_keep") in (None, 0, 1) and kwargs.get("return_dict") is not False
    rows = layers[0].rows == ids.shape[0]
    return on_gpu(ids) and ids.shape[1] == 1 and ragged and keeps and rows and kwargs.get("use_cache") is not False


def _is_whole(mask: Any, first: Any, ids: Tensor) -> bool:
    """Tell whether a mask has a number for each token so far; what it must be otherwise is the model's path to say."""
    if mask is None:
        return True
    return isinstance(mask, Tensor) and mask.shape == (ids.shape[0], first.get_seq_length() + 1)


def on_gpu(ids: Tensor) -> bool:
    """Tell whether steps on these ids can be captured."""
    return ids.is_cuda and not torch.cuda.is_current_stream_capturing()


def _valid(mask: Any) -> Tensor | None:
    return None if mask is None else mask[:, -1:].bool()


def _output(kwargs: dict[str, Any], cache: Any, logits: Tensor) -> Any:
    from transformers.modeling_outputs import CausalLMOutputWithPast

    name = next(name for name, value in kwargs.items() if value is cache)
    return CausalLMOutputWithPast(logits=logits, **{name: cache})  # type: ignore[arg-type]
