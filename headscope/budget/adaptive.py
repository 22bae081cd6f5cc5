"""The adaptive rule: heads of a layer compete for its tokens by what the prompt's own attention says."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from headscope.budget.room import Room
from headscope.budget.shares import apportion


def adaptive(
    scores: Tensor,
    total: int,
    window: int,
    prompt: int | None,
    /,
    *,
    importances: Tensor | None = None,
    floor: float = 0.2,
) -> Tensor:
    """Keep in each layer the tokens that matter most to any of its heads, and give each head as many as it won.

    beyond the window = floor * base + (1 - floor) * (the head's tokens among the layer's kv * base most important)

    AdaKV (Feng et al. 2024, arXiv 2407.11550) with its safeguard, the floor. Exact in each layer: every layer keeps as
    many tokens as another, or one more where `total` does not divide.

    importances: [layer, kv, prompt], how much each prompt token matters to each KV head, such as the pooled attention
    of the window; those of the window itself are not looked at. Of equal ones, the lowest (KV head, token) comes first.
    scores: only their shape counts.
    """
    if isinstance(floor, bool) or not 0 <= floor <= 1:
        raise ValueError(f"`floor` must be a number from 0 to 1, got {floor!r}")
    tokens = _check(importances, scores, prompt)
    room = Room.of(scores, total, window, tokens.shape[-1])
    beyond, extra = divmod(room.spare, room.layers)
    kept = [
        _layer(tokens[layer, :, : room.most], beyond + (layer < extra), room.most, floor)
        for layer in range(room.layers)
    ]
    return room.kept(torch.cat(kept))


def _layer(tokens: Tensor, spare: int, most: int, floor: float) -> Tensor:
    """Divide one layer's spare tokens: importances [kv, token] -> int64 [kv]."""
    won = torch.from_numpy(_won(tokens.numpy(), spare))
    return apportion(floor * spare / len(tokens) + (1 - floor) * won.double(), spare, most)


def _won(tokens: np.ndarray, many: int) -> np.ndarray:
    """Count the `many` most important tokens head by head: [kv, token] -> int64 [kv]; of equal ones the first win."""
    if many == 0:
        return np.zeros(len(tokens), np.int64)
    last = np.partition(tokens, -many, axis=None)[-many]
    above, equal = (tokens > last).sum(-1), (tokens == last).sum(-1)
    before = equal.cumsum() - equal
    return above + np.clip(many - above.sum() - before, 0, equal)


def _check(importances: Tensor | None, scores: Tensor, prompt: int | None) -> Tensor:
    """Give the importances on the CPU, in fp64; what does not fit the scores and the prompt is a ValueError."""
    shape = [*scores.shape, "prompt" if prompt is None else prompt]
    if importances is None:
        raise ValueError(
            f"`importances` must be a tensor {_listed(shape)}: `adaptive` plans for one prompt, by what its tokens "
            "matter to each KV head; plan where the prompt is known, or choose another `rule`"
        )
    found = torch.as_tensor(importances).detach().cpu().double()
    if found.ndim != 3 or found.shape[:2] != scores.shape or found.shape[2] != (prompt or max(found.shape[2], 1)):
        raise ValueError(f"`importances` must be {_listed(shape)}, got {_listed(found.shape)}")
    if not found.isfinite().all():
        layer, kv, token = (~found.isfinite()).nonzero()[0].tolist()
        raise ValueError(f"`importances` must be finite, got {found[layer, kv, token]} at [{layer}, {kv}, {token}]")
    return found


def _listed(shape: object) -> str:
    return f"[{', '.join(map(str, shape))}]"  # type: ignore[call-overload]
