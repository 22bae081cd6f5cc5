"""What the tests of speculation share: drafts with settings for tiny models, padded prompts, plain answers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headscope.families import geometry
from headscope.scores import HeadScores
from headscope.speculate import SparseToDense
from tests.attach.models import tokens

LENGTHS = (40, 23, 3, 31)
SETTINGS: dict[str, dict[str, Any]] = {
    "head_budget": {"per_head": 30, "window": 4},
    "text_guided": {"per_head": 12},
    "observation_window": {"per_head": 30, "window": 4},
    "sinks_and_recent": {"per_head": 20, "window": 4},
    "early_exit": {"layers": 2},
    "prompt_lookup": {},
}


def scores_of(model: Any) -> HeadScores:
    """Give random scores for a model's heads."""
    shape = geometry(model.config)
    values = torch.rand(shape.layers, shape.heads, generator=torch.Generator().manual_seed(0))
    return HeadScores.from_values(values, kv_heads=shape.kv_heads)


def speculate(model: Any, draft: str = "head_budget", gamma: int | str = 5, **more: Any) -> SparseToDense:
    """Give a decoder with a draft that stands sometimes."""
    settings = SETTINGS[draft] | ({"scores": scores_of(model)} if draft == "head_budget" else {})
    return SparseToDense(draft, gamma=gamma, **(settings | more))


def padded(lengths: tuple[int, ...] = LENGTHS) -> dict[str, Tensor]:
    """Give random prompts of these lengths, padded on the left."""
    longest = max(lengths)
    rows = [tokens(length, seed=length)[0] for length in lengths]
    return {
        "input_ids": torch.stack([torch.nn.functional.pad(row, (longest - len(row), 0)) for row in rows]),
        "attention_mask": torch.stack(
            [torch.nn.functional.pad(torch.ones_like(row), (longest - len(row), 0)) for row in rows]
        ),
    }
