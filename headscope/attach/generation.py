"""Generation: the model's own `generate`, told where its prompt ends, and refused what a ragged cache cannot do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from headscope.attach.entry import Entry, find_cache, prompt_end
from headscope.attach.positions import recall
from headscope.attach.replay import Generation, generation
from headscope.cache import RaggedCache

ONE = ("num_beams", "num_return_sequences")


@contextmanager
def own_generate(model: Any, entry: Entry) -> Iterator[None]:
    """Put a `generate` of this model's own before that of its class inside the block."""
    if not hasattr(model, "generate"):
        yield
        return
    there = vars(model).get("generate")
    model.generate = _generate(model, model.generate, entry)
    try:
        yield
    finally:
        del model.generate
        if there is not None:
            model.generate = there


def _generate(model: Any, generate: Callable[..., Any], entry: Entry) -> Callable[..., Any]:
    """Wrap `generate`: check its settings, give it a cache, and say where the prompt ends."""

    def compressed(inputs: Tensor | None = None, generation_config: Any = None, *args: Any, **kwargs: Any) -> Any:
        settings = generation_config, model.generation_config
        for name in ONE:
            if (value := _setting(name, kwargs, settings)) not in (None, 1):
                raise ValueError(f"`{name}` must be 1 inside `hs.compress`, got {value}; call generate once for each")
        if (kind := _setting("cache_implementation", kwargs, settings)) not in (None, "dynamic", "dynamic_full"):
            raise ValueError(f"`cache_implementation` must be left out inside `hs.compress`, got {kind!r}")
        if find_cache(kwargs) is None and _setting("use_cache", kwargs, settings) is not False:
            kwargs[entry.cache_name] = RaggedCache()
        cache = find_cache(kwargs)
        if cache is not None:
            entry.prepare(cache)
            recall(model, cache)
        prompt = _end(inputs, cache, kwargs)
        tokens = prompt_end.set(prompt), generation.set(Generation(_last(prompt, kwargs, settings)))
        try:
            return generate(inputs, generation_config, *args, **kwargs)
        finally:
            prompt_end.reset(tokens[0])
            generation.reset(tokens[1])

    return compressed


def _setting(name: str, kwargs: dict[str, Any], configs: tuple[Any, ...]) -> Any:
    """Give a generation setting: as a keyword, else of the call's config, else of the model's."""
    values = [kwargs.get(name), *(getattr(config, name, None) for config in configs)]
    return next((value for value in values if value is not None), None)


def _last(prompt: int | None, kwargs: dict[str, Any], configs: tuple[Any, ...]) -> int | None:
    """Give the logical length that the answer cannot pass, where it is known."""
    new = _setting("max_new_tokens", kwargs, configs)
    return prompt + int(new) if prompt is not None and new is not None else _setting("max_length", kwargs, configs)


def _end(inputs: Tensor | None, cache: Any, kwargs: dict[str, Any]) -> int | None:
    """Give the prompt's logical length: the ids are all of it, or with a longer mask what follows in the cache."""
    embeds = kwargs.get("inputs_embeds")
    ids = kwargs.get("input_ids") if inputs is None else inputs
    given = embeds if embeds is not None else ids
    if given is None:
        return None
    mask = kwargs.get("attention_mask")
    whole = given is embeds or mask is None or mask.shape[1] == given.shape[1]
    return int(given.shape[1]) + (0 if whole or cache is None else cache.get_seq_length())
