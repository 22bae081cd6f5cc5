"""headscope: find the attention heads of a multimodal model that read the picture.

    import headscope as hs

    scores = hs.probe(model, processor, pages)
    scores.save("scores/mine.json")
    hs.HeadScores.load("scores/mine.json").top(10)
    hs.allocate(scores, per_head=64).save("budgets/mine.json")
    with hs.compress(model, "budgets/mine.json"):
        model.generate(**inputs)

Nothing heavy is imported before one of these names is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headscope.accounting import account
    from headscope.attach import compress
    from headscope.budget import Budget, allocate
    from headscope.cache import RaggedCache
    from headscope.probing.run import probe
    from headscope.scores import HeadScores
    from headscope.sparsity import Thresholds, sparsify
    from headscope.speculate import SparseToDense, generate

__version__ = "0.1.0"
__all__ = [
    "Budget",
    "HeadScores",
    "RaggedCache",
    "SparseToDense",
    "Thresholds",
    "__version__",
    "account",
    "allocate",
    "compress",
    "generate",
    "probe",
    "sparsify",
]


HOMES = {
    "Budget": "headscope.budget",
    "HeadScores": "headscope.scores",
    "RaggedCache": "headscope.cache",
    "SparseToDense": "headscope.speculate",
    "Thresholds": "headscope.sparsity",
    "account": "headscope.accounting",
    "allocate": "headscope.budget",
    "compress": "headscope.attach",
    "generate": "headscope.speculate",
    "probe": "headscope.probing.run",
    "sparsify": "headscope.sparsity",
}


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module 'headscope' has no attribute {name!r}")
    return getattr(importlib.import_module(HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
