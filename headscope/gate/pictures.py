"""Pictures: `Read picture k.` among many, `What is the KEY?` among many lines, and pages to score."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from headscope.evaluate.words import page_text, words_right
from headscope.gate.decoding import Inputs
from headscope.gate.layout import encode
from headscope.gate.placement import DEPTHS, Placement, check
from headscope.gate.prose import Window
from headscope.page import Page
from headscope.page.image import decode
from headscope.probing.prompt import ask
from headscope.resources import find

PRINT_PX = 20  # in the middle of what the bundled model was trained on
LINE_PX = 32
WIDTH_PX = 280  # a multiple of every family's cell but LLaVA's, as the heights are
KEYS = ("name", "date", "total", "code", "city", "order", "price", "phone", "room", "item", "owner", "status", "number")


def read_pictures(
    processor: Any, *, count: int, depths: Sequence[float] = DEPTHS, each: int = 8, seed: int = 0
) -> Iterator[Placement]:
    """Yield prompts with `count` pictures of two lines each that ask for the one at a depth, by its number."""
    check(tuple(depths), each)
    if count < 2:
        raise ValueError(f"`pictures` must be numbers of pictures, each at least 2, got {count}")
    test = f"{count} pictures"
    for depth in depths:
        for trial in range(each):
            rng = random.Random(f"{seed} {test} {depth} {trial}")
            pages = [_lines(rng) for _ in range(count)]
            asked = round(depth * (count - 1))
            texts = [" ".join(lines) for lines in pages]
            others = tuple(text for at, text in enumerate(texts) if at != asked)
            inputs = partial(_ask, processor, pages, f"Read picture {asked + 1}.")
            yield Placement(test, depth, trial, texts[asked], others, inputs, shows, max_new_tokens=48)


def key_values(
    processor: Any, *, depths: Sequence[float] = DEPTHS, each: int = 8, seed: int = 0
) -> Iterator[Placement]:
    """Yield a picture of one `key: value` line under another, and the question for the value of the line at a depth."""
    check(tuple(depths), each)
    for depth in depths:
        for trial in range(each):
            rng = random.Random(f"{seed} keys {depth} {trial}")
            keys, values = rng.sample(KEYS, len(KEYS)), [" ".join(_words(rng, 1)) for _ in KEYS]
            asked = round(depth * (len(KEYS) - 1))
            lines = [f"{key}: {value}" for key, value in zip(keys, values, strict=True)]
            others = tuple(value for at, value in enumerate(values) if at != asked and value != values[asked])
            inputs = partial(_ask, processor, [lines], f"What is the {keys[asked]}?")
            yield Placement("keys", depth, trial, values[asked], others, inputs, is_value, max_new_tokens=24)


def shows(text: str, lines: str) -> bool:
    """Whether an answer has at least three quarters of a picture's words in place.

    A misread word of four is a matter of reading, which perplexity measures; here it counts which picture was found.
    """
    found = words_right(lines, text)
    return 4 * found.right >= 3 * found.total


def is_value(text: str, value: str) -> bool:
    """Whether an answer is a value and nothing else."""
    return text.split() == value.split()


def pages_to_score(processor: Any, pages: Sequence[Page], question: str, scored: int = 512) -> list[Window]:
    """Give each page as a window: the question about it as the prompt, its own text to score.

    Raises ValueError for a page that does not carry its text, and when none has a word.
    """
    texts = [encode(processor.tokenizer, page_text(page))[:scored] for page in pages]
    if not any(texts):
        raise ValueError(f"`pages` must have words to be scored, the {len(pages)} given have none")
    return [
        Window(page.name, partial(_about, processor, page, question), tuple(ids))
        for page, ids in zip(pages, texts, strict=True)
        if ids
    ]


def draw(lines: Sequence[str]) -> np.ndarray:
    """Print lines in black on white: uint8 [height, width, 3], the sides whole cells of 28 pixels."""
    height = -(-(len(lines) * LINE_PX + 12) // 28) * 28
    sheet = Image.new("RGB", (WIDTH_PX, height), "white")
    pen, face = ImageDraw.Draw(sheet), ImageFont.load_default(PRINT_PX)
    for row, line in enumerate(lines):
        pen.text((10, 6 + row * LINE_PX), line, fill="black", font=face)
    return np.asarray(sheet)


def _lines(rng: random.Random) -> list[str]:
    return [" ".join(_words(rng, 2)) for _ in range(2)]


def _words(rng: random.Random, count: int) -> list[str]:
    listed = find("data", "pages", "words.txt").read_text(encoding="ascii").split()
    return rng.sample([word for word in listed if 3 <= len(word) <= 9], count)


def _about(processor: Any, page: Page, question: str) -> Inputs:
    return ask(processor, [decode(page.source, name=page.name)], question)


def _ask(processor: Any, pages: Sequence[Sequence[str]], question: str) -> Inputs:
    """Ask about pictures, each with its number before it where the chat template does not put one there."""
    images = [draw(lines) for lines in pages]
    if len(images) == 1 or _numbers(processor):
        return ask(processor, images, question)
    content: list[dict[str, Any]] = []
    for number, image in enumerate(images, start=1):
        content += [{"type": "text", "text": f"Picture {number}: "}, {"type": "image", "image": Image.fromarray(image)}]
    content.append({"type": "text", "text": question})
    return processor.apply_chat_template(
        [{"role": "user", "content": content}],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
    )


def _numbers(processor: Any) -> bool:
    """Whether a chat template numbers pictures itself."""
    content = [{"type": "image"}, {"type": "image"}, {"type": "text", "text": "?"}]
    return "Picture 2:" in processor.apply_chat_template([{"role": "user", "content": content}], tokenize=False)
