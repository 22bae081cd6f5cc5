"""The prompt: one dense pass of the model, after which each layer has its dense segments and those of the draft."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headscope.attach.attention import NAME, register
from headscope.attach.entry import CACHE_NAMES, Entry, prompt_end, sliding_windows, visual_tokens
from headscope.attach.step import Policy, Step
from headscope.cache import RaggedCache, RaggedLayer
from headscope.cache.segments import Segments
from headscope.families import attention_modules, language_model
from headscope.kernels.segments import chosen_positions
from headscope.runtime import WindowedSegments
from headscope.speculate.handback import Held
from headscope.speculate.offload import Offload, roomy
from headscope.speculate.parking import Parking

ROOM = 256  # slots behind each segment at first, if the answer may be as long


@dataclass(frozen=True, eq=False)
class Filled:
    """A prompt that has been read.

    logits: [row, token], of what follows. tokens: int64 [row], of the prompt, no padding, what its cache held before
    included. total: with padding. next_position: int64 [row]. whole: dense segments of each layer. kept: the draft's;
    None where it has none. visual: bool [row, total], or None.
    """

    logits: Tensor
    tokens: Tensor
    total: int
    next_position: Tensor
    whole: list[Segments]
    kept: list[Segments] | None
    visual: Tensor | None


class IntakeLayer(RaggedLayer):
    """A layer while its prompt comes in. whole, kept: its segments once the prompt is there.

    parking: where it waits between the pieces of a prompt; None: where it is.
    """

    whole: Segments | None = None
    kept: Segments | None = None
    parking: Parking | None = None

    def wait(self, key: Tensor, value: Tensor, query: Tensor, last: int) -> None:
        """Keep a prompt dense until the rest of it comes. query: [row, head, new, dim]; `last` of them are kept."""
        super().wait(key, value, query, last)
        if self.parking is not None:
            self.waiting = self.parking.put(key, value)

    def dense(self) -> tuple[Tensor, Tensor]:
        """Give the keys and values of the prompt so far, those that just came in included."""
        if self.parking is not None and self.waiting is not None:
            self.waiting = self.parking.get(self.waiting)
        return super().dense()


@dataclass(frozen=True, eq=False)
class IntakeStep(Step):
    """A pass over a prompt: what `Step` is, but all tokens are packed, and those of the draft beside them."""

    keeps: bool = False
    room: int = 0
    offload: Offload | None = None

    def finish(self, layer: RaggedLayer, index: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> None:
        """Pack a layer: query [row, head, query, dim], the last ones; key, value [row, kv, token, dim], dense."""
        assert isinstance(layer, IntakeLayer)
        rows, kvs, length, _ = key.shape
        there = torch.ones(rows, length, dtype=torch.bool, device=key.device)
        there = there if self.valid is None else self.valid.to(key.device)
        whole = there[:, None].expand(-1, kvs, -1), kvs * sum(self.prompts)
        layer.whole = self._packed(layer, key, value, there, *whole, self._offload(index))
        if self.keeps:
            chosen = self._chosen(self._prompt(layer, index, query, key, scaling))
            layer.kept = self._packed(layer, key, value, there, *chosen)
        layer.is_initialized = True
        layer.waiting = layer.queries = layer.parking = None

    def _offload(self, index: int) -> Offload | None:
        return None if self.offload is None or index < self.offload.resident else self.offload

    def _packed(
        self,
        layer: IntakeLayer,
        key: Tensor,
        value: Tensor,
        there: Tensor,
        chosen: Tensor,
        total: int,
        offload: Offload | None = None,
    ) -> Segments:
        """Pack the chosen tokens, bool [row, kv, token], `total` in all."""
        lengths, window = chosen.sum(-1, dtype=torch.int32), layer.sliding_window
        given = key, value, chosen_positions(chosen, total), lengths
        packed: Any
        if offload is None:
            packed = (Segments if window is None else WindowedSegments).of(*given, min(self.room, ROOM))
        else:
            host = None if layer.parking is None else layer.parking.host
            packed = offload.take(*given, self.room, windowed=window is not None, host=host)
        return packed if window is None else packed.slide(window, chosen, there)


@dataclass(frozen=True, eq=False)
class IntakeEntry(Entry):
    """The hooks of `compress`, for a prompt that ends at `end`. keeps: whether the draft has segments of its own."""

    end: int
    keeps: bool
    room: int
    offload: Offload | None

    def prepare(self, cache: Any) -> None:
        """The cache is ours already."""

    def _step(self, first: RaggedLayer, new: Tensor, valid: Tensor | None) -> Step:
        seen = first.get_seq_length() + new.shape[1]
        return self._describe(first, self.end if seen == self.end else None, new.shape[0], seen, valid)

    def _describe(self, first: RaggedLayer, end: int | None, rows: int, seen: int, valid: Tensor | None) -> Step:
        step = super()._describe(first, end, rows, seen, valid)
        return IntakeStep(**vars(step), keeps=self.keeps, room=self.room, offload=self.offload)

    def _note_positions(self, positions: Any, first: RaggedLayer, valid: Tensor | None, new: int) -> None:
        """Keep every row's next position: [row]."""
        if not isinstance(positions, Tensor):
            return
        last = positions[..., -1] if positions.ndim == 2 else positions[-3:, :, -1].amax(0)
        first.rope_deltas = last + 1


def prefill(
    model: Any,
    input_ids: Tensor,
    generation_config: Any,
    kwargs: dict[str, Any],
    policy: Policy,
    keeps: bool,
    room: int,
    offload: Offload | None = None,
) -> Filled:
    """Read a prompt, as plain generation would, behind what the caller's cache holds (`Held`).

    kwargs: what `generate` made of its arguments. keeps: whether the draft has segments of its own. room: tokens that
    the answer may have. offload: what takes the dense segments into the CPU's memory.
    """
    stack: Any = language_model(model)
    name = next(name for name in CACHE_NAMES if name in inspect.signature(stack.forward).parameters)
    windows = sliding_windows(stack.config)
    attention_modules(model)
    held = Held.of(next((kwargs.pop(each) for each in CACHE_NAMES if kwargs.get(each) is not None), None), name)
    end = _end(input_ids, generation_config, kwargs, held.tokens)
    cache = RaggedCache([IntakeLayer(window) for window in windows])
    held.put_into(cache.layers)
    if offload is not None:
        _park(cache.layers[offload.resident :], offload, end + roomy(room, end))
    if held.tokens and input_ids.shape[1] == end:
        cache.layers[0].visual = visual_tokens(model.config, input_ids[:, : held.tokens])
    entry = IntakeEntry(model, stack, policy, name, end, keeps, room, offload)
    with _attached(model, stack, entry):
        outputs = model._prefill(input_ids, generation_config, kwargs | {name: cache, "use_cache": True})
    return _filled(outputs.logits[:, -1], cache.layers, end, kwargs.get("attention_mask"), keeps)


@contextmanager
def _attached(model: nn.Module, stack: Any, entry: IntakeEntry) -> Iterator[None]:
    before = stack.config._attn_implementation
    if str(before).startswith(NAME):
        raise ValueError(
            "`model` is inside a `hs.compress` block, which speculation cannot verify in; leave that first"
        )
    with ExitStack() as exits:
        exits.callback(prompt_end.reset, prompt_end.set(entry.end))
        exits.callback(stack.set_attn_implementation, before)
        stack.set_attn_implementation(register(before))
        exits.callback(model.register_forward_pre_hook(entry.enter_model, with_kwargs=True).remove)
        exits.callback(stack.register_forward_pre_hook(entry.enter_stack, with_kwargs=True).remove)
        yield


def _park(layers: Sequence[Any], offload: Offload, capacity: int) -> None:
    for layer in layers:
        layer.parking = Parking(offload.device, capacity)


def _end(input_ids: Tensor, generation_config: Any, kwargs: dict[str, Any], held: int) -> int:
    """Give the prompt's length, padding and what the cache holds included."""
    mask = kwargs.get("attention_mask")
    if isinstance(mask, Tensor):
        return mask.shape[1]
    embeds = kwargs.get("inputs_embeds")
    length = (input_ids if embeds is None else embeds).shape[1]
    whole = getattr(generation_config, "_mask_length", None)  # of a mask of ones, which transformers drops
    if whole is not None and whole >= length:
        return whole
    return length if length > held else held + length


def _filled(logits: Tensor, layers: list[Any], end: int, mask: Tensor | None, keeps: bool) -> Filled:
    rows = logits.shape[0]
    tokens = torch.full((rows,), end, device=logits.device)
    if isinstance(mask, Tensor):
        tokens = mask.to(logits.device).long().sum(-1)
    first = layers[0]
    following = tokens if first.rope_deltas is None else first.rope_deltas.to(logits.device)
    kept = [layer.kept for layer in layers] if keeps else None
    return Filled(logits, tokens, end, following.expand(rows), [layer.whole for layer in layers], kept, first.visual)
