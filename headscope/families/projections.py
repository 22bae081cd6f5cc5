"""The projections: the seven weights of a decoder layer that a decode step reads whole."""

from __future__ import annotations

from typing import Any

from torch import nn

from headscope.families.decoder import language_model

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
SHARED = ("q_proj", "q_proj", "q_proj", "o_proj", "gate_proj", "gate_proj", "down_proj")  # whose input each one takes


def projections(model: nn.Module) -> list[dict[str, nn.Module]]:
    """Give the projections of each text layer by name, in the order of PROJECTIONS.

    Raises ValueError for a layer without all seven, such as one of experts or of joined projections.
    """
    stack: Any = language_model(model)
    return [_of_layer(layer, index) for index, layer in enumerate(stack.layers)]


def _of_layer(layer: Any, index: int) -> dict[str, nn.Module]:
    found = {}
    for name in PROJECTIONS:
        block = getattr(layer, "self_attn" if name in PROJECTIONS[:4] else "mlp", None)
        module = getattr(block, name, None)
        if not isinstance(module, nn.Module):
            has = ", ".join(child for child, _ in block.named_children()) if block is not None else "no such block"
            raise ValueError(
                f"`model` must have {', '.join(PROJECTIONS)} in each decoder layer, layer {index} lacks {name} "
                f"(it has {has}); layers of experts or of joined projections are not handled"
            )
        found[name] = module
    return found
