"""Answers: what a model says about many pages, in batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image


@torch.no_grad()
def answer_pages(
    model: Any,
    processor: Any,
    images: Sequence[np.ndarray],
    question: str,
    *,
    max_new_tokens: int = 320,
    batch: int = 16,
) -> list[str]:
    """Give the model's greedy answer to one question about each page (uint8 [height, width, 3]), in padded batches."""
    for name, value in {"batch": batch, "max_new_tokens": max_new_tokens}.items():
        if value < 1:
            raise ValueError(f"`{name}` must be at least 1, got {value}")
    return [
        text
        for first in range(0, len(images), batch)
        for text in _answer(model, processor, images[first : first + batch], question, max_new_tokens)
    ]


def _answer(model: Any, processor: Any, images: Sequence[np.ndarray], question: str, max_new_tokens: int) -> list[str]:
    content = [{"type": "image"}, {"type": "text", "text": question}]
    prompt = processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True)
    inputs = processor(
        text=[prompt] * len(images),
        images=[[Image.fromarray(image)] for image in images],
        padding=True,
        padding_side="left",
        add_special_tokens=not prompt.startswith(processor.tokenizer.bos_token or prompt),
        return_tensors="pt",
    ).to(model.device, dtype=model.dtype)
    output = model.generate(**inputs, do_sample=False, num_beams=1, max_new_tokens=max_new_tokens)
    answers = output[:, inputs["input_ids"].shape[1] :]
    return processor.batch_decode(answers, skip_special_tokens=True, clean_up_tokenization_spaces=False)
