"""Model families: which of them a model belongs to, where its decoder layers are, which positions hold its pictures."""

from __future__ import annotations

from typing import Any

from headscope.families.decoder import Geometry, attention_modules, geometry, language_model
from headscope.families.family import Family
from headscope.families.grid import Axis, Grid, Picture
from headscope.families.llava import LLAVA
from headscope.families.llava_next import LLAVA_NEXT
from headscope.families.llava_onevision import LLAVA_ONEVISION
from headscope.families.qwen_vl import QWEN2_5_VL, QWEN2_VL, QWEN3_VL

__all__ = [
    "FAMILIES",
    "Axis",
    "Family",
    "Geometry",
    "Grid",
    "Picture",
    "attention_modules",
    "detect",
    "geometry",
    "language_model",
    "of_type",
]

FAMILIES: tuple[Family, ...] = (QWEN2_VL, QWEN2_5_VL, QWEN3_VL, LLAVA, LLAVA_NEXT, LLAVA_ONEVISION)


def detect(config: Any) -> Family:
    """Give the family of a model by its config.

    Raises ValueError for a model of no known family, naming those that are known.
    """
    return of_type(getattr(config, "model_type", None))


def of_type(model_type: str | None) -> Family:
    """Give the family of a config's `model_type`; ValueError as in detect."""
    for family in FAMILIES:
        if model_type in family.model_types:
            return family
    known = ", ".join(name for family in FAMILIES for name in family.model_types)
    raise ValueError(
        f"`model_type` must be one of {known}, got {model_type or 'none'}; docs/families.md says how to add a family"
    )
