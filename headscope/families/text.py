"""Text models: loaded with their tokenizer, from a folder, the hub, or one GGUF file."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedConfig

from headscope.families import FAMILIES
from headscope.families.loading import DTYPES, check_device, locate, one_line, quiet

GGUF = ".gguf"


def is_text(name: str | Path, *, revision: str | None = None) -> bool:
    """Say whether a model is a text model: a GGUF file, or a config that belongs to no vision family."""
    if _gguf(name) is not None:
        return True
    path = locate(name)
    with one_line("config", name), quiet():
        raw, _ = PreTrainedConfig.get_config_dict(path, revision=revision)
    return not any(raw.get("model_type") in family.model_types for family in FAMILIES)


def load_text(
    name: str | Path,
    *,
    dtype: str | torch.dtype = "auto",
    device: str | torch.device | None = None,
    device_map: str | Mapping[str, Any] | None = None,
    revision: str | None = None,
) -> tuple[nn.Module, Any]:
    """Load (model, tokenizer), ready for inference.

    name: a GGUF file, a folder with one and no config.json, a folder with a checkpoint, or a name on the hub. A GGUF
    file's weights are taken apart into `dtype`, so they need the memory that `dtype` needs. dtype, device, device_map:
    as in `headscope.families.loading.load`.

    Raises ValueError or FileNotFoundError for what cannot be loaded, ImportError for a GGUF file without its package.
    """
    if (dtype := str(dtype).removeprefix("torch.")) not in DTYPES:
        raise ValueError(f"`dtype` must be one of {', '.join(DTYPES)}, got {dtype!r}")
    if device is not None and device_map is not None:
        raise ValueError("`device` and `device_map` exclude each other; give one of them")
    check_device(device)
    file = _gguf(name)
    if file is not None and find_spec("gguf") is None:
        raise ImportError("a GGUF file needs the package gguf; run pip install 'headscope[gguf]'")
    path = locate(name) if file is None else str(file.parent)
    where: dict[str, Any] = {"revision": revision} if file is None else {"gguf_file": file.name}
    with one_line("tokenizer", name), quiet():
        tokenizer = AutoTokenizer.from_pretrained(path, **where)
    with one_line("model", name), quiet():
        loader: Any = AutoModelForCausalLM
        model, report = loader.from_pretrained(
            path, dtype=dtype, device_map=device_map, output_loading_info=True, **where
        )
    if missing := sorted(report["missing_keys"]):
        raise ValueError(
            f"`model` {str(name)!r} lacks {len(missing)} of its weights, such as {missing[0]}; fetch it again"
        )
    return (model if device is None else model.to(device)).eval(), tokenizer


def _gguf(name: str | Path) -> Path | None:
    """Give the GGUF file that a name means: itself, or the only one of a folder that has no config.json."""
    path = Path(name).expanduser()
    if path.is_file() and path.suffix == GGUF:
        return path.resolve()
    if not str(name) or not path.is_dir() or (path / "config.json").is_file():
        return None
    files = sorted(path.glob(f"*{GGUF}"))
    if len(files) > 1:
        raise ValueError(
            f"`model` {str(name)!r} holds {len(files)} GGUF files; give one of them, such as {files[0].name}"
        )
    return files[0].resolve() if files else None
