"""Identity: which model a score file speaks of, without saying where it lies."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from headscope.families import FAMILIES, geometry

# What differs between two loads of one model: who wrote the config, and how the weights are held.
VOLATILE = ("transformers_version", "dtype", "torch_dtype", "attn_implementation", "architectures")


def model_identity(model: nn.Module) -> dict[str, Any]:
    """Say which model this is: id, revision, config_hash, family, layers, heads, kv_heads, head_dim.

    id: the name on the hub, or a folder's name without its path. config_hash: sha256 of the config without what differs
    between two loads of one model (dtype, attention implementation, software versions). family: a text model's is its
    config's `model_type`.
    """
    config: Any = model.config
    sizes = geometry(config)
    return {
        "id": _short(config._name_or_path),
        "revision": getattr(config, "_commit_hash", None),
        "config_hash": _hash(config.to_dict()),
        "family": _family(config.model_type),
        "layers": sizes.layers,
        "heads": sizes.heads,
        "kv_heads": sizes.kv_heads,
        "head_dim": sizes.head_dim,
    }


def _family(model_type: str) -> str:
    return next((family.name for family in FAMILIES if model_type in family.model_types), model_type)


def _short(name: str) -> str:
    path = Path(name).expanduser()
    return path.name if path.is_absolute() or path.is_dir() or name.count("/") > 1 else name


def _hash(config: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(_stable(config), sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _stable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            str(key): _stable(item)
            for key, item in value.items()
            if item is not None and key not in VOLATILE and not str(key).startswith("_")
        }
    if isinstance(value, (list, tuple)):
        return [_stable(item) for item in value]
    return value
