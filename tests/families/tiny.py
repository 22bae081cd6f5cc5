"""One tiny random model for each family that headscope knows: `TINY[name]()` gives (model, processor)."""

from __future__ import annotations

from collections.abc import Callable

from tests.families.tiny_llava import llava_15, llava_next_mistral, llava_next_vicuna, llava_onevision
from tests.families.tiny_qwen import Tiny, qwen2_5_vl, qwen2_vl, qwen3_vl

TINY: dict[str, Callable[[], Tiny]] = {
    "qwen2_vl": qwen2_vl,
    "qwen2_5_vl": qwen2_5_vl,
    "qwen3_vl": qwen3_vl,
    "llava": llava_15,
    "llava_next": llava_next_vicuna,
    "llava_next_mistral": llava_next_mistral,
    "llava_onevision": llava_onevision,
}
