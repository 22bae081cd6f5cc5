"""A budget: how many of a prompt's tokens each (layer, KV head) keeps."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headscope.budget.budget_file import parse, to_text
from headscope.budget.precision import token_bytes
from headscope.files import write_atomically
from headscope.scores.score_file import is_count


@dataclass(frozen=True, eq=False)
class Budget:
    """Prompt tokens kept by each (layer, KV head), the window included; generated tokens come on top.

    kept: int64 [layer, kv] on the CPU, min(window, prompt) <= kept <= prompt.
    window: how many of the last prompt tokens every head keeps.
    prompt: the prompt length that it was planned for, in tokens; None: for any length.
    rule, settings: the rule that planned it, and that rule's settings. model: whose heads they are.
    asked: tokens that were asked for, in all; None: as many as are kept.
    moved: tokens that the prompt's length took from heads that wanted more than the whole prompt, for other heads.
    scores, software: what it was planned from and with. origin: the file it came from, for errors.
    """

    kept: Tensor
    window: int
    prompt: int | None = None
    rule: str = "given"
    settings: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    asked: int | None = None
    moved: int = 0
    scores: dict[str, Any] = field(default_factory=dict)
    software: dict[str, Any] = field(default_factory=dict)
    origin: str | None = None

    def __post_init__(self) -> None:
        where = f"`{self.origin}`: " if self.origin else ""
        for name, optional in {"window": False, "prompt": True, "asked": True}.items():
            value = getattr(self, name)
            if not is_count(value) and not (optional and value is None):
                raise ValueError(f"{where}`{name}` must be a whole number of tokens above 0, got {value!r}")
            object.__setattr__(self, name, value if value is None else int(value))
        if not is_count(self.moved) and self.moved != 0:
            raise ValueError(f"{where}`moved` must be a whole number of tokens, got {self.moved!r}")
        kept = _as_kept(self.kept, where)
        _check_bounds(kept, self.window, self.prompt, where)
        geometry = {"layers": kept.shape[0], "kv_heads": kept.shape[1]}
        object.__setattr__(self, "kept", kept)
        object.__setattr__(self, "model", self.model | geometry)

    @property
    def layers(self) -> int:
        """Number of layers."""
        return self.kept.shape[0]

    @property
    def kv_heads(self) -> int:
        """Number of KV heads in a layer."""
        return self.kept.shape[1]

    @property
    def total(self) -> int:
        """Tokens kept by all heads together."""
        return int(self.kept.sum())

    @property
    def per_head(self) -> float:
        """Mean of the tokens that a head keeps."""
        return self.total / self.kept.numel()

    @property
    def per_layer(self) -> Tensor:
        """Mean of the tokens that a head keeps, layer by layer: float64 [layer]."""
        return self.kept.double().mean(-1)

    @property
    def lost(self) -> int:
        """Tokens that were asked for and that no head keeps, because the prompt is too short for them."""
        return max(0, (self.total if self.asked is None else self.asked) - self.total)

    def clipped(self, prompt: int) -> Budget:
        """Give the budget for a prompt of this many tokens: min(kept, prompt); `lost` says what that takes away."""
        if not is_count(prompt):
            raise ValueError(f"`prompt` must be a whole number of tokens above 0, got {prompt!r}")
        if self.prompt is not None and prompt >= self.prompt:
            return self
        asked = self.total if self.asked is None else self.asked
        return replace(self, kept=self.kept.clamp_max(prompt), prompt=prompt, asked=asked)

    def kv_bytes(self, dtype: str | torch.dtype = "bfloat16", head_dim: int | None = None, batch: int = 1) -> int:
        """Bytes of the keys and values of the kept tokens, in caches of this dtype.

        head_dim: None takes the model's, where the budget knows it.
        """
        return batch * self.total * token_bytes(dtype, self.model.get("head_dim") if head_dim is None else head_dim)

    def check(self, layers: int, kv_heads: int) -> Budget:
        """Refuse a budget that does not fit a model of this shape; gives the budget back."""
        if (self.layers, self.kv_heads) != (layers, kv_heads):
            raise ValueError(
                f"`{self.origin or 'budget'}`: expected {layers} layers x {kv_heads} KV heads, "
                f"found {self.layers} layers x {self.kv_heads} KV heads; this budget is another model's"
            )
        return self

    def save(self, path: str | Path) -> None:
        """Write the budget file (JSON, format `headscope.budget/1`), whole or not at all."""
        write_atomically(path, to_text(self))

    @classmethod
    def load(cls, path: str | Path) -> Budget:
        """Read a budget file; what is not whole and valid is an error with the file, the expected and the found."""
        return cls(**parse(path))


def _as_kept(kept: Any, where: str) -> Tensor:
    """Give int64 [layer, kv] on the CPU, a copy; a fraction, even of value 3.0, is a ValueError."""
    try:
        tensor = torch.as_tensor(kept).detach().cpu()
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"{where}`kept` must be whole numbers [layer, kv], each layer with as many") from None
    if tensor.ndim != 2 or tensor.numel() == 0:
        raise ValueError(f"{where}`kept` must be [layer, kv], got shape {list(tensor.shape)}")
    if tensor.dtype == torch.bool or tensor.is_floating_point() or tensor.is_complex():
        raise ValueError(f"{where}`kept` must be whole numbers of tokens, got {str(tensor.dtype).split('.')[-1]}")
    return tensor.to(torch.int64, copy=True)


def _check_bounds(kept: Tensor, window: int, prompt: int | None, where: str) -> None:
    least = window if prompt is None else min(window, prompt)
    most = torch.iinfo(torch.int64).max if prompt is None else prompt
    outside = ((kept < least) | (kept > most)).nonzero()
    if len(outside):
        layer, kv = outside[0].tolist()
        bounds = f"at least {least}" + ("" if prompt is None else f" and at most {prompt}")
        raise ValueError(
            f"{where}`kept` must be {bounds} tokens (window {window}, prompt {prompt or 'of any length'}), "
            f"got {int(kept[layer, kv])} at layer {layer}, KV head {kv}"
        )
