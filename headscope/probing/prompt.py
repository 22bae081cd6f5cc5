"""The prompt: a question about a page, as the decoder stack receives it, with the picture already encoded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

# What a decoder stack may be given beside the embeddings: all of it depends on the prompt alone.
CARRIED = ("inputs_embeds", "position_ids", "visual_pos_masks", "deepstack_visual_embeds")


def ask(processor: Any, images: list[np.ndarray], question: str) -> Any:
    """Give the model's inputs, a batch of one: pictures (uint8 [height, width, 3]), then a question about them.

    Raises ValueError when the processor has no chat template.
    """
    if not getattr(processor, "chat_template", None):
        raise ValueError(
            f"`processor` ({type(processor).__name__}) needs a chat template and has none; "
            "set `processor.chat_template` or add chat_template.jinja to the model's folder"
        )
    # PIL pictures: a bare array of few columns would be taken for a picture with its channels first.
    pictures = [{"type": "image", "image": Image.fromarray(image)} for image in images]
    messages = [{"role": "user", "content": [*pictures, {"type": "text", "text": question}]}]
    return processor.apply_chat_template(
        messages, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
    )


@dataclass
class Recorded:
    """What the decoder stack received in its first call: empty until then."""

    arguments: dict[str, Any] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """Length of the prompt in tokens."""
        return self.arguments["inputs_embeds"].shape[1]

    def extended(self, language_model: Any, answer: Tensor) -> dict[str, Any]:
        """Give the arguments for a pass over the prompt and an answer (int64 [token]) behind it.

        Positions run on by one a token from the prompt's last, on every axis: the prompt ends in text.
        """
        embeds = self.arguments["inputs_embeds"]
        added = language_model.get_input_embeddings()(answer[None].to(embeds.device)).to(embeds)
        arguments = dict(self.arguments, inputs_embeds=torch.cat([embeds, added], dim=1))
        arguments["attention_mask"] = torch.ones(
            arguments["inputs_embeds"].shape[:2], dtype=torch.int64, device=embeds.device
        )
        if (positions := arguments.get("position_ids")) is not None:
            steps = torch.arange(1, len(answer) + 1, device=positions.device)
            arguments["position_ids"] = torch.cat([positions, positions[..., -1:] + steps], dim=-1)
        if (visual := arguments.get("visual_pos_masks")) is not None:
            arguments["visual_pos_masks"] = nn.functional.pad(visual, (0, len(answer)))
        return arguments


class _Recorded(Exception):
    """Ends a forward pass once the prompt is known."""


@contextmanager
def record(language_model: nn.Module, *, stop: bool = False) -> Iterator[Recorded]:
    """Record what the decoder stack receives first inside the block; with `stop`, end that forward pass there.

    The pass itself is left as it is: the hook only keeps references.
    """
    recorded = Recorded()

    def keep(_module: nn.Module, _args: tuple, kwargs: dict[str, Any]) -> None:
        if not recorded.arguments:
            recorded.arguments = {name: kwargs[name] for name in CARRIED if kwargs.get(name) is not None}
            if stop:
                raise _Recorded

    handle = language_model.register_forward_pre_hook(keep, with_kwargs=True)
    try:
        yield recorded
    except _Recorded:
        pass
    finally:
        handle.remove()
