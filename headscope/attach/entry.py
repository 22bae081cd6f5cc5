"""The way in: hooks that put ragged layers into a cache and say what each pass over a prompt is."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from headscope.attach.attention import STEP
from headscope.attach.step import Policy, Step
from headscope.cache import RaggedCache, RaggedLayer
from headscope.families import attention_modules

VISUAL = "headscope_visual"  # the keyword that takes the mask of visual tokens from the model to its decoder stack
CACHE_NAMES = ("cache", "past_key_values")  # from transformers 5.24 on, and before

# Logical length at which the prompt of the `generate` call that runs now ends; None: outside of generate.
prompt_end: ContextVar[int | None] = ContextVar("prompt_end", default=None)


@dataclass(frozen=True, eq=False)
class Entry:
    """Forward pre-hooks of one block. stack: the model's decoder stack. cache_name: the keyword of its cache."""

    model: nn.Module
    stack: nn.Module
    policy: Policy
    cache_name: str

    def enter_model(self, _module: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
        """Note which of a prompt's tokens are visual, while their ids are at hand."""
        layers = getattr(find_cache(kwargs), "layers", None)
        if layers and getattr(layers[0], "compressed", False):
            return None
        ids = kwargs.get("input_ids", args[0] if args else None)
        visual = visual_tokens(self.model.config, ids)
        return None if visual is None else (args, kwargs | {VISUAL: visual})

    def enter_stack(self, _module: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
        """Find the cache, make it ragged while it is empty, and say what the pass is."""
        kwargs = dict(kwargs)
        visual = kwargs.pop(VISUAL, None)
        cache: Any = find_cache(kwargs)
        if cache is None:
            if not self._wants_cache(kwargs):
                return args, kwargs
            cache = kwargs[self.cache_name] = RaggedCache()
        self.prepare(cache)
        hidden = kwargs.get("inputs_embeds")
        new: Any = kwargs.get("input_ids", args[0] if args else None) if hidden is None else hidden
        first: RaggedLayer = cache.layers[0]
        valid = self._valid(kwargs.get("attention_mask"), first, new)
        self._note_positions(kwargs.get("position_ids"), first, valid, new.shape[1])
        if not first.compressed:
            self._note_visual(first, visual, new)
            if prompt_end.get() is None and first.waiting is not None and new.shape[1] == 1:
                self._end_prompt(cache, valid)
            else:
                kwargs[STEP] = self._step(first, new, valid)
        return args, kwargs

    def prepare(self, cache: Any) -> None:
        """Put ragged layers into an empty cache; refuse one that cannot be ragged."""
        layers = getattr(cache, "layers", None)
        if layers and all(isinstance(layer, RaggedLayer) for layer in layers):
            return
        if not isinstance(cache, (DynamicCache, RaggedCache)) or getattr(cache, "offloading", False):
            raise ValueError(
                f"`{self.cache_name}` must be a DynamicCache or hs.RaggedCache that is not offloaded inside "
                f"`hs.compress`, got {type(cache).__name__}"
            )
        if cache.get_seq_length():
            raise ValueError(
                f"`{self.cache_name}` must be empty when it first comes into `hs.compress`, got a full cache with "
                f"{cache.get_seq_length()} tokens; take a new one"
            )
        cache.layers[:] = [RaggedLayer(window) for window in sliding_windows(self.stack.config)]
        cache.layer_class_to_replicate = None

    def _wants_cache(self, kwargs: dict[str, Any]) -> bool:
        wants = kwargs.get("use_cache")
        return bool(getattr(self.stack.config, "use_cache", False) if wants is None else wants)  # type: ignore[union-attr]

    def _valid(self, mask: Any, first: RaggedLayer, new: Tensor) -> Tensor | None:
        """Check the attention mask and give it as bool [row, token]; None: no padding."""
        rows, total = new.shape[0], first.get_seq_length() + new.shape[1]
        if first.rows not in (0, rows):
            raise ValueError(f"the cache holds {first.rows} sequences, got {rows}; take a new cache for other prompts")
        if mask is None:
            return None
        if not isinstance(mask, Tensor) or mask.shape != (rows, total):
            found = list(mask.shape) if isinstance(mask, Tensor) else type(mask).__name__
            raise ValueError(
                f"`attention_mask` must be [{rows}, {total}] inside `hs.compress`, one number for each token so far, "
                f"got {found}"
            )
        return mask.bool()

    def _note_positions(self, positions: Any, first: RaggedLayer, valid: Tensor | None, new: int) -> None:
        """Keep M-RoPE's offset of position against length with the cache: [row, 1]."""
        if isinstance(positions, Tensor) and positions.ndim == 3 and positions.shape[0] in (3, 4) and new > 1:
            last = positions[-3:, :, -1].amax(0)[:, None]
            seen = first.get_seq_length() + new if valid is None else valid.sum(-1, keepdim=True)
            first.rope_deltas = last + 1 - seen

    def _note_visual(self, first: RaggedLayer, visual: Tensor | None, new: Tensor) -> None:
        """Keep which of the prompt's tokens are visual with the cache."""
        if visual is None and first.visual is None:
            return
        rows, before = new.shape[0], first.get_seq_length()
        none = torch.zeros(rows, before + new.shape[1], dtype=torch.bool, device=new.device)
        known = none[:, :before] if first.visual is None else first.visual.to(new.device)
        fresh = none[:, before:] if visual is None else visual.to(new.device)
        first.visual = torch.cat([known, fresh], dim=1)

    def _step(self, first: RaggedLayer, new: Tensor, valid: Tensor | None) -> Step:
        seen = first.get_seq_length() + new.shape[1]
        end = prompt_end.get()
        if end is None:
            wait = self.policy.pieces and seen != self.policy.plan.prompt
            end = None if wait else seen
        elif end > seen:
            end = None
        return self._describe(first, end, new.shape[0], seen, valid)

    def _describe(self, first: RaggedLayer, end: int | None, rows: int, seen: int, valid: Tensor | None) -> Step:
        length = seen if end is None else end
        prompts = [length] * rows
        if valid is not None:
            there = valid[:, :length]
            ends = end is None or bool(there[:, -1].all())  # a piece of a prompt may be nothing but padding
            if not ends or bool((there[:, :-1] & ~there[:, 1:]).any()):
                raise ValueError(
                    "`attention_mask` must pad prompts on the left; set the tokenizer's padding_side='left'"
                )
            prompts = there.sum(-1).tolist()
            valid = None if min(prompts) == length else there
        visual = first.visual
        last = self.policy.plan.window
        if visual is not None and end is None:
            places = torch.arange(seen, device=visual.device)
            last = max(last, seen - 1 - int(torch.where(visual, places, -1).amax(-1).min()))
        return Step(self.policy, end, valid, prompts, visual, last)

    def _end_prompt(self, cache: Any, valid: Tensor | None) -> None:
        """Compress a prompt that came in pieces, now that a single token follows it."""
        layers: list[RaggedLayer] = cache.layers
        length = layers[0].get_seq_length()
        valid = None if valid is None else valid[:, :length]
        step = self._describe(layers[0], length, layers[0].rows, length, valid)
        modules: list[Any] = list(attention_modules(self.model))
        for index, (layer, module) in enumerate(zip(layers, modules, strict=True)):
            assert layer.waiting is not None and layer.queries is not None
            step.finish(layer, index, layer.queries, *layer.waiting, module.scaling)


def sliding_windows(config: Any) -> list[int | None]:
    """Give each layer's sliding window, or None, as transformers' own cache takes it from the config."""
    layers = DynamicCache(config=config).layers
    other = next((layer for layer in layers if type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer)), None)
    if other is not None or getattr(config, "attention_chunk_size", None):
        kind = "chunks" if other is None else type(other).__name__
        raise ValueError(f"`model` must see all keys, or a sliding window of them, in each layer, got {kind}")
    return [getattr(layer, "sliding_window", None) for layer in layers]


def find_cache(kwargs: dict[str, Any]) -> Cache | None:
    """Give the cache among keyword arguments, by either of its names."""
    return next((kwargs[name] for name in CACHE_NAMES if kwargs.get(name) is not None), None)


def visual_tokens(config: Any, ids: Any) -> Tensor | None:
    """Say which ids are placeholders of pictures or videos: bool like ids; None where that cannot be known."""
    names = ("image_token_id", "video_token_id")
    places = [token for name in names if (token := getattr(config, name, None)) is not None]
    if not places or not isinstance(ids, Tensor):
        return None
    return torch.isin(ids, torch.tensor(places, device=ids.device))
