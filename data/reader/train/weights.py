"""The weights of a folder of safetensors, under the twin's parameter names."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file

# A checkpoint that transformers saved has Qwen2-VL's published names; export.py writes the names of the twin.
PUBLISHED = {
    "visual.": "model.visual.",
    "model.layers.": "model.language_model.layers.",
    "model.embed_tokens.": "model.language_model.embed_tokens.",
    "model.norm.": "model.language_model.norm.",
}


def twin_name(name: str) -> str:
    """Give the twin's name of a parameter."""
    for published, ours in PUBLISHED.items():
        if name.startswith(published):
            return ours + name.removeprefix(published)
    return name


def read_weights(folder: Path) -> dict[str, torch.Tensor]:
    """Read all shards of a folder, in the order of their names.

    Raises FileNotFoundError when there are none.
    """
    weights = {}
    for path in sorted(folder.glob("*.safetensors")):
        weights |= {twin_name(name): weight for name, weight in load_file(path).items()}
    if not weights:
        raise FileNotFoundError(
            f"`{folder}` must hold *.safetensors files but has none; give the folder of a checkpoint"
        )
    return weights
