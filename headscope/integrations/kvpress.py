"""A press: a budget at work inside kvpress, in its pipeline and as its context manager.

    from headscope.integrations.kvpress import HeadBudgetPress

    press = HeadBudgetPress("budget.json")
    pipeline("kv-press-text-generation", model=...)(context, question=question, press=press)
    with press(model):
        model.generate(**inputs)

kvpress simulates counts that differ by head: a dropped position keeps its memory, and its key is replaced by one that
no query attends to. So the quality is that of the budget, the memory and the speed are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool1d

from headscope.budget import Budget
from headscope.budget.formats import as_budget
from headscope.families import attention_modules, geometry

try:
    from kvpress import BasePress
    from kvpress.utils import get_prerope_query_states
except ModuleNotFoundError as error:
    if error.name != "kvpress":
        raise
    raise ModuleNotFoundError(
        "headscope.integrations.kvpress needs the package kvpress: pip install kvpress, in an environment of its own "
        "(it asks for an older transformers than the rest of headscope), then pip install --no-deps headscope"
    ) from None

POOL = 5  # SnapKV's and SparseMM's


@dataclass
class HeadBudgetPress(BasePress):
    """Keep `min(budget.kept, prompt)` tokens of each (layer, KV head), those that the last queries look at most.

    budget: a Budget, or the path of a budget file. The last `budget.window` tokens always stay; the others are ranked
    by their attention from these queries: mean over the queries, mean over the group, average pool, the earlier of
    equal ones first (SnapKV, arXiv:2404.14469). A prompt no longer than the window is left whole. One prompt at a time
    and in one piece: kvpress compresses what the first forward pass reads.

    What is masked stays so after the block, since kvpress' pipeline decodes there; the next prompt clears it. Call
    `forget(model)` before decoding on from a whole cache of another prompt.

    Raises ValueError where the model has other layers or KV heads than the budget, attends eagerly, or gets a batch.
    """

    budget: Budget
    pool: int = POOL

    def __post_init__(self) -> None:
        self.budget = as_budget(self.budget)
        if self.pool < 1 or self.pool % 2 == 0:
            raise ValueError(f"`pool` must be an odd number of at least 1, got {self.pool!r}")

    def post_init_from_model(self, model: Any) -> None:
        """Refuse a model that the budget does not fit, and forget what an earlier run has masked."""
        sizes = geometry(model.config)
        self.budget.check(sizes.layers, sizes.kv_heads)
        if model.config.get_text_config()._attn_implementation == "eager":
            raise ValueError(
                "`attn_implementation` must be sdpa or flash attention for counts that differ by head, got eager; "
                'call model.set_attn_implementation("sdpa")'
            )
        forget(model)

    def compress(
        self,
        module: Any,
        hidden_states: Tensor,
        keys: Tensor,
        values: Tensor,
        attentions: Tensor | None,
        kwargs: dict[str, Any],
    ) -> tuple[Tensor, Tensor]:
        """Mask what the budget drops of one layer: keys and values [batch, kv, key, dim] come back as they are."""
        batch, _, prompt, _ = keys.shape
        if batch > 1:
            raise ValueError(f"`batch` must be 1 for counts that differ by head, got {batch}; give prompts one by one")
        window = self.budget.window
        kept = self.budget.kept[module.layer_idx].to(keys.device).clamp(max=prompt)
        if prompt <= window or bool((kept == prompt).all()):
            module.masked_key_indices = None
        else:
            scores = importance(window_queries(module, hidden_states[:, -window:], kwargs), keys, scale(module))
            module.masked_key_indices = dropped(pooled(scores, self.pool), kept - window)
        return keys, values


def forget(model: nn.Module) -> None:
    """Clear what presses have masked in a model's attention modules."""
    for module in attention_modules(model):
        module.masked_key_indices = None  # type: ignore[assignment]


def window_queries(module: Any, hidden_states: Tensor, kwargs: dict[str, Any]) -> Tensor:
    """Give the rotated queries [batch, head, query, dim] of the last hidden states [batch, query, width]."""
    if hasattr(module, "q_norm"):  # kvpress' own function knows two classes that have one
        heads = module.q_proj(hidden_states).unflatten(-1, (module.config.num_attention_heads, module.head_dim))
        queries = module.q_norm(heads).transpose(1, 2)
    else:
        queries = get_prerope_query_states(module, hidden_states)
    cos, sin = (_one_axis(part, module)[:, None, -queries.shape[2] :] for part in kwargs["position_embeddings"])
    turned, rest = queries.split([cos.shape[-1], queries.shape[-1] - cos.shape[-1]], dim=-1)
    left, right = turned.chunk(2, dim=-1)
    return torch.cat((turned * cos + torch.cat((-right, left), dim=-1) * sin, rest), dim=-1)


def _one_axis(part: Tensor, module: Any) -> Tensor:
    """Merge M-RoPE's three axes [3, batch, query, dim] as Qwen2-VL does (arXiv:2409.12191); others have one."""
    if part.ndim == 3:
        return part
    rope = getattr(module.config, "rope_parameters", None) or module.config.rope_scaling  # since / before 5.0
    sections = rope["mrope_section"] * 2
    return torch.cat([piece[at % 3] for at, piece in enumerate(part.split(sections, dim=-1))], dim=-1)


def scale(module: Any) -> float:
    """Give the factor of a module's attention logits."""
    return getattr(module, "scaling", module.head_dim**-0.5)


def importance(queries: Tensor, keys: Tensor, scaling: float) -> Tensor:
    """Give float32 [batch, kv, key]: causal attention of the last queries to the keys before them.

    The mean over the queries and the group. queries: [batch, head, query, dim], of the last keys. keys: [batch, kv,
    key, dim].
    """
    batch, heads, window, dim = queries.shape
    kv, length = keys.shape[1:3]
    grouped = queries.float().view(batch, kv, heads // kv, window, dim)
    logits = grouped @ keys.float()[:, :, None].transpose(-1, -2) * scaling
    future = torch.ones(window, length, dtype=torch.bool, device=keys.device).triu(length - window + 1)
    weights = logits.masked_fill(future, float("-inf")).softmax(-1)
    return weights[..., : length - window].mean((2, 3))


def pooled(scores: Tensor, pool: int) -> Tensor:
    """Average each position with its neighbours, zeros beyond the ends, as SnapKV does."""
    return avg_pool1d(scores, pool, stride=1, padding=pool // 2)


def dropped(scores: Tensor, kept: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Give the batch, KV head and position of all but the best `kept` of each head.

    scores: [batch, kv, key]; of equal ones the first is kept. kept: int64 [kv].
    """
    order = scores.sort(dim=-1, descending=True, stable=True).indices
    beyond = torch.arange(scores.shape[-1], device=scores.device) >= kept[:, None]
    batch, head, rank = beyond.expand_as(order).nonzero(as_tuple=True)
    return batch, head, order[batch, head, rank]
