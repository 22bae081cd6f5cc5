"""A layer of the ragged cache: dense while its prompt comes in, segments from then on."""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from torch import Tensor
from transformers.cache_utils import CacheLayerMixin

from headscope.cache.segments import Segments
from headscope.cache.tokens import Tokens
from headscope.kernels import ragged_decode, ragged_verify
from headscope.kernels.segments import chosen_positions

MARGIN = 64  # tokens that a sliding window has passed and that are still held, so that `crop` can take back as many

Dense = tuple[Tensor, Tensor]


class RaggedLayer(CacheLayerMixin):
    """Keys and values of one layer.

    Its `update` gives (layer, layer): headscope's attention, which alone sees the queries, takes the layer as its key.

    waiting: dense keys and values [row, kv, token, dim] of a prompt that is not whole yet. queries: [row, head, query,
    dim], its last queries. segments, tokens: what is held of the prompt and of everything after it. dense_copy: the
    prompt's dense keys and values in the CPU's memory, where that was asked for. visual, rope_deltas: of the whole
    sequence; only the first layer has them. replay: the sequence's decode step, where it is captured; also there.
    """

    is_croppable = True
    supports_early_init = False

    def __init__(self, sliding_window: int | None = None) -> None:
        super().__init__()
        self.sliding_window = sliding_window
        self.is_sliding = sliding_window is not None
        self.clear()

    def __getstate__(self) -> dict[str, Any]:
        """Give what a copy takes over: not the captured step, which works on this layer's own buffers."""
        return vars(self) | {"replay": None}

    def clear(self) -> None:
        """Forget everything."""
        self.is_initialized = False
        self.incoming: Dense | None = None
        self.waiting: Dense | None = None
        self.queries: Tensor | None = None
        self.segments: Segments | None = None
        self.tokens: Tokens | None = None
        self.dense_copy: Dense | None = None
        self.visual: Tensor | None = None
        self.rope_deltas: Tensor | None = None
        self.replay: Any = None

    # What transformers asks of a layer.

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to do before the first keys and values are there."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """Take new keys and values [row, kv, new, dim]; the attention that follows puts them in their place."""
        self.incoming = (key_states.detach(), value_states.detach())
        return self, self

    @property
    def shape(self) -> NoReturn:
        """Say what is wrong when another attention takes the layer for a tensor."""
        raise ValueError("a ragged cache can be used only inside `hs.compress`; enter it again, or take a new cache")

    def get_seq_length(self) -> int:
        """Give the logical length: all tokens seen, kept or not."""
        if self.tokens is not None:
            return self.tokens.seen
        return 0 if self.waiting is None else self.waiting[0].shape[2]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Give (keys, offset) for the mask: all of them while dense, then only the new ones."""
        seen = self.get_seq_length()
        return (query_length, seen) if self.compressed else (seen + query_length, 0)

    def get_max_length(self) -> int:
        """There is no maximum."""
        return -1

    def reset(self) -> None:
        """Forget everything; the next tokens are a new prompt."""
        self.clear()

    def crop(self, tokens_to_remove: int) -> None:
        """Take back the last -tokens_to_remove tokens, kept or not; all of them or more: forget everything."""
        if tokens_to_remove > 0:
            raise ValueError(
                f"`crop` takes a negative number, how many tokens to take back, or 0, got {tokens_to_remove}"
            )
        length = self.get_seq_length() + tokens_to_remove
        if tokens_to_remove == 0:
            return
        if length <= 0:
            self.clear()
        elif self.waiting is not None:
            self._crop_waiting(length)
        else:
            self._crop_segments(length)

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Refuse beams."""
        raise ValueError("`num_beams` must be 1 inside `hs.compress`: the rows of a ragged cache cannot change places")

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Refuse copies of rows."""
        raise ValueError("the rows of a ragged cache cannot be repeated; repeat the prompt instead")

    def batch_select_indices(self, indices: Tensor) -> None:
        """Refuse a choice of rows."""
        raise ValueError("rows of a ragged cache cannot be taken out; give the prompts that are wanted")

    def offload(self) -> None:
        """Refuse transformers' offloading: what is kept is small."""
        raise ValueError("an offloading cache cannot be ragged; give `cache=hs.RaggedCache()`, or none")

    # What the attention asks of a layer.

    @property
    def compressed(self) -> bool:
        """Whether the prompt is whole and its tokens are chosen."""
        return self.segments is not None

    @property
    def rows(self) -> int:
        """Sequences in the batch; 0 before the first token."""
        if self.tokens is not None:
            return self.tokens.kept.shape[0]
        return 0 if self.waiting is None else self.waiting[0].shape[0]

    @property
    def kv_bytes(self) -> int:
        """Bytes of keys and values, slack included."""
        if self.segments is not None:
            return self.segments.kv_bytes
        return 0 if self.waiting is None else self.waiting[0].nbytes + self.waiting[1].nbytes

    def dense(self) -> Dense:
        """Give the keys and values of the prompt so far, those that just came in included."""
        incoming, self.incoming = self._incoming(), None
        if self.waiting is None:
            return incoming
        key, value = (torch.cat(pair, dim=2) for pair in zip(self.waiting, incoming, strict=True))
        return key, value

    def wait(self, key: Tensor, value: Tensor, query: Tensor, last: int) -> None:
        """Keep a prompt dense until the rest of it comes. query: [row, head, new, dim]; `last` of them are kept."""
        self.is_initialized = True
        before = query[:, :, :0] if self.queries is None else self.queries
        self.waiting, self.queries = (key, value), torch.cat([before, query], dim=2)[:, :, -last:].contiguous()

    def compress(self, key: Tensor, value: Tensor, chosen: Tensor, total: int | None = None) -> None:
        """Keep the chosen tokens, bool [row, kv, token], of the whole prompt's dense keys and values.

        total: how many are chosen in all; None: the device is asked, and waited for.
        """
        positions = chosen_positions(chosen, int(chosen.sum()) if total is None else total)
        lengths = chosen.sum(-1, dtype=torch.int32)
        length = key.shape[2]
        self.is_initialized = True
        self.segments = Segments.of(key, value, positions, lengths)
        floor = 0 if self.sliding_window is None else max(0, length - self.sliding_window + 1)
        self.tokens = Tokens(length, length, positions.to(torch.int32), lengths.clone(), floor=floor)
        self.waiting = self.queries = self.visual = None

    def extend(self, key: Tensor, value: Tensor, valid: Tensor | None = None) -> None:
        """Append new tokens [row, kv, new, dim]. valid: bool [row, new], False on padding, which is not held."""
        assert self.segments is not None and self.tokens is not None
        new = key.shape[2]
        if new > self.segments.room:
            self.reserve(new)
        if valid is not None and new > 1:
            order = (~valid).to(torch.int8).argsort(dim=1, stable=True)[:, None, :, None]
            key, value = (dense.gather(2, order.expand_as(dense)) for dense in (key, value))
        self.segments.append(key, value)
        if valid is not None:
            self.segments.lengths -= (new - valid.sum(-1, keepdim=True)).to(torch.int32)
        self.tokens.add(new, valid)

    def reserve(self, tokens: int) -> None:
        """Make room for so many more tokens; what a sliding window has left far behind is dropped on the way."""
        if self.segments is None or self.tokens is None:
            return
        dropped = None
        if self.sliding_window is not None and (floor := self.tokens.seen - self.sliding_window - MARGIN) > 0:
            dropped = self.tokens.held_before(floor)
            self.tokens.dropped = dropped if self.tokens.dropped is None else self.tokens.dropped + dropped
            self.tokens.floor = max(self.tokens.floor, floor)
        self.segments.reserve(tokens, dropped)

    def attend(self, query: Tensor, scaling: float, valid: Tensor | None = None) -> Tensor:
        """Append what came in and attend: [row, head, new, dim] -> [row, new, head, dim].

        valid: bool [row, new], False on padding; None: no padding.
        """
        incoming, self.incoming = self._incoming(), None
        if query.shape[2] == 1:
            return self._attend_one(query, *incoming, scaling, valid)
        if self.sliding_window is not None:
            return self._attend_each(query, *incoming, scaling, valid)
        return self._attend_all(query, *incoming, scaling, valid)

    def _attend_one(self, query: Tensor, key: Tensor, value: Tensor, scaling: float, valid: Tensor | None) -> Tensor:
        self.extend(key, value, valid)
        assert self.segments is not None and self.tokens is not None
        starts, lengths = self.segments.starts, self.segments.lengths
        if self.sliding_window is not None and (passed := self.tokens.seen - self.sliding_window) > 0:
            gone = self.tokens.held_before(passed)
            starts, lengths = starts + gone, lengths - gone
        output, _ = ragged_decode(query[:, :, 0], self.segments.key, self.segments.value, starts, lengths, scaling)
        return output[:, None]

    def _attend_all(self, query: Tensor, key: Tensor, value: Tensor, scaling: float, valid: Tensor | None) -> Tensor:
        """Attend with all new tokens at once; what padding's queries give is finite and means nothing.

        The kernel takes the last queries of a row for those of its last tokens: padding goes to the front.
        """
        self.extend(key, value, valid)
        assert self.segments is not None
        held = self.segments.key, self.segments.value, self.segments.starts, self.segments.lengths
        if valid is None:
            return ragged_verify(query, *held, scaling)[0].transpose(1, 2).contiguous()
        order = valid.to(torch.int8).argsort(dim=1, stable=True)[:, None, :, None].expand_as(query)
        output, _ = ragged_verify(query.gather(2, order), *held, scaling)
        return torch.empty_like(output).scatter_(2, order, output).transpose(1, 2).contiguous()

    def _attend_each(self, query: Tensor, key: Tensor, value: Tensor, scaling: float, valid: Tensor | None) -> Tensor:
        """Attend token by token: each has a window of its own."""
        there: Any = [None] * query.shape[2] if valid is None else valid.split(1, dim=1)
        steps = zip(*(states.split(1, dim=2) for states in (query, key, value)), there, strict=True)
        outputs = [self._attend_one(q, k, v, scaling, at) for q, k, v, at in steps]
        return torch.cat(outputs, dim=1)

    def _incoming(self) -> Dense:
        if self.incoming is None:
            raise ValueError("the layer has no new keys and values; call `update` before its attention")
        return self.incoming

    def _crop_waiting(self, length: int) -> None:
        assert self.waiting is not None and self.queries is not None
        gone = self.waiting[0].shape[2] - length
        self.waiting = (self.waiting[0][:, :, :length], self.waiting[1][:, :, :length])
        self.queries = self.queries[:, :, : max(0, self.queries.shape[2] - gone)]
        self.visual = None if self.visual is None else self.visual[:, :length]

    def _crop_segments(self, length: int) -> None:
        assert self.segments is not None and self.tokens is not None
        if self.sliding_window is not None and length - self.sliding_window + 1 < self.tokens.floor:
            raise ValueError(
                f"`crop` can take back {MARGIN} tokens of a layer with a sliding window of {self.sliding_window}, and "
                f"none of a prompt that is longer than it, got {self.tokens.seen - length}"
            )
        if self.tokens.present is None:
            self.segments.room += min(self.tokens.seen - length, self.tokens.appended)
        self.segments.lengths.copy_(self.tokens.held_before(length))
        self.tokens.cut(length)
