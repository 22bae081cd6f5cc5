"""Training batches: one page size and one number of pictures in all rows of a batch, so that no mask is needed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from common import CELL, SPECIAL
from pages import Drawer
from tokenizers import Tokenizer

IM_END, VISION_START, VISION_END, IMAGE_PAD = (
    SPECIAL.index(name) for name in ("<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>")
)
READ_ALL = "Read all pictures."


@dataclass(frozen=True)
class Bucket:
    """The form of a batch: cells a picture (rows x columns), pictures a row, rows, and the longest answer in tokens."""

    name: str
    rows: int
    columns: int
    pictures: int
    batch: int
    answer_tokens: int


BUCKETS = {
    "A": Bucket("A", 2, 8, 1, 1024, 24),
    "B": Bucket("B", 4, 10, 1, 768, 48),
    "C": Bucket("C", 8, 8, 1, 512, 72),
    "D": Bucket("D", 8, 14, 1, 320, 112),
    "E": Bucket("E", 12, 12, 1, 288, 128),
    "F": Bucket("F", 16, 16, 1, 160, 192),
    "G": Bucket("G", 22, 18, 1, 88, 288),
    "M1": Bucket("M1", 2, 8, 8, 256, 24),
    "M2": Bucket("M2", 4, 8, 12, 96, 48),
    "M3": Bucket("M3", 4, 10, 32, 24, 48),
}


class Stream(torch.utils.data.IterableDataset):
    """An endless stream of batches, drawn by as many workers as the loader has."""

    def __init__(self, root: Path, tokenizer: Path, schedule: Callable[[random.Random], Bucket], seed: int) -> None:
        """Take the folder of fonts and words, the tokenizer file, and the function that chooses each batch's bucket."""
        self.root, self.tokenizer, self.schedule, self.seed = root, tokenizer, schedule, seed

    def __iter__(self) -> Iterator[dict]:
        """Draw this worker's batches."""
        worker = torch.utils.data.get_worker_info()
        drawer = Drawer(self.root, self.seed * 1000 + (worker.id if worker else 0) * 7 + 1)
        tokenizer = Tokenizer.from_file(str(self.tokenizer))
        while True:
            yield make_batch(drawer, tokenizer, self.schedule(drawer.rng))


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    """Give the token ids of a text."""
    return tokenizer.encode(text, add_special_tokens=False).ids


def prompt_ids(tokenizer: Tokenizer, bucket: Bucket) -> tuple[list[int], list[list[int]], int]:
    """Give the part of the prompt before the question: ids, M-RoPE positions [token, 3], and the next position."""
    ids = encode(tokenizer, "<|im_start|>user\n")
    positions = [[p, p, p] for p in range(len(ids))]
    p = len(ids)
    for picture in range(bucket.pictures):
        label = encode(tokenizer, f"Picture {picture + 1}: ") if bucket.pictures > 1 else []
        ids += [*label, VISION_START] + [IMAGE_PAD] * (bucket.rows * bucket.columns) + [VISION_END]
        positions += [[p + j] * 3 for j in range(len(label) + 1)]
        p += len(label) + 1
        positions += [[p, p + row, p + column] for row in range(bucket.rows) for column in range(bucket.columns)]
        p += max(bucket.rows, bucket.columns)
        positions.append([p] * 3)
        p += 1
    return ids, positions, p


def any_bucket(rng: random.Random, tokens: int = 50_000) -> Bucket:
    """Choose any picture size and number of pictures; the batch fills a number of tokens."""
    if rng.random() < 0.40:
        rows, columns, pictures, name = rng.randint(2, 22), rng.randint(7, 20), 1, "single"
    else:
        rows, columns, pictures = many_pictures(rng)
        name = "K2-8" if pictures <= 8 else ("K9-24" if pictures <= 24 else "K25+")
    cells = rows * columns
    row_tokens = pictures * (cells + 10) + 24 + min(320, cells)
    return Bucket(name, rows, columns, pictures, max(4, min(1024, tokens // row_tokens)), min(320, 24 + cells))


def many_pictures(rng: random.Random) -> tuple[int, int, int]:
    """Choose rows, columns and the number of pictures: up to 64 small ones or 24 larger ones, 6,000 tokens together."""
    small = rng.random() < 0.6
    rows, columns = (rng.randint(2, 4), rng.randint(6, 12)) if small else (rng.randint(3, 12), rng.randint(6, 14))
    pictures = max(2, round(2 * ((64 if small else 24) / 2) ** rng.random()))
    return rows, columns, min(pictures, max(2, 6000 // (rows * columns + 8)))


def draw_row(drawer: Drawer, bucket: Bucket) -> tuple[list[np.ndarray], str, str]:
    """Draw the pictures of one row: their ink, uint8 [height, width] each, a question and its answer."""
    keyed = bucket.pictures == 1 and bucket.rows >= 4 and drawer.rng.random() < 0.25
    masks, pages = [], []
    while len(pages) < bucket.pictures:
        mask, lines = drawer.page(bucket.rows * CELL, bucket.columns * CELL, keyed)
        if lines:
            masks.append(mask)
            pages.append(lines)
    ask = ask_of_many(drawer.rng, pages) if bucket.pictures > 1 else ask_of_one(drawer.rng, pages[0], keyed)
    return masks, *ask


def ask_of_many(rng: random.Random, pages: list[list[str]]) -> tuple[str, str]:
    """Ask for all pictures, if their text is short, or for one; give question and answer."""
    if rng.random() < 0.25 and sum(len(line) for lines in pages for line in lines) < 700:
        return READ_ALL, "\n".join(f"{number}: " + " / ".join(lines) for number, lines in enumerate(pages, 1))
    picture = rng.randrange(len(pages))
    return f"Read picture {picture + 1}.", "\n".join(pages[picture])


def ask_of_one(rng: random.Random, lines: list[str], keyed: bool) -> tuple[str, str]:
    """Ask for the value of a key, for one line or for the whole text; give question and answer."""
    kind = rng.random()
    if keyed and kind < 0.7:
        key, value = rng.choice(lines).split(": ", 1)
        return f"What is the {key}?", value
    if len(lines) > 1 and kind < 0.3:
        line = rng.randrange(len(lines))
        return f"Read line {line + 1}.", lines[line]
    return "Read the text.", "\n".join(lines)


def tokenize(tokenizer: Tokenizer, question: str, answer: str, bucket: Bucket) -> tuple[list[int], list[int]]:
    """Give the ids of question and answer; the answer is cut and ended."""
    longest = 400 if question == READ_ALL else bucket.answer_tokens
    ids = encode(tokenizer, question + "<|im_end|>\n<|im_start|>assistant\n")
    return ids, [*encode(tokenizer, answer)[:longest], IM_END]


def make_batch(drawer: Drawer, tokenizer: Tokenizer, bucket: Bucket) -> dict:
    """Draw a batch: `ids` and `lab` [batch, token] (labels of the next token, -100 outside answers), `pos` [3, token],
    `img_at` [cell] (where the cells of all pictures are), `mask` uint8 [batch * picture, height, width]."""
    prompt, positions, p = prompt_ids(tokenizer, bucket)
    masks, pairs = [], []
    for _ in range(bucket.batch):
        drawn, question, answer = draw_row(drawer, bucket)
        masks += drawn
        pairs.append(tokenize(tokenizer, question, answer, bucket))
    length = len(prompt) + max(len(question) + len(answer) for question, answer in pairs)
    length = (length + 15) // 16 * 16
    positions += [[p + j] * 3 for j in range(length - len(prompt))]
    ids, labels = rows_of(prompt, pairs, length)
    return {
        "name": bucket.name,
        "ids": torch.from_numpy(ids),
        "lab": torch.from_numpy(labels),
        "pos": torch.tensor(positions).T.contiguous(),
        "img_at": torch.from_numpy(np.nonzero(np.array(prompt) == IMAGE_PAD)[0]),
        "mask": torch.from_numpy(np.stack(masks)),
    }


def rows_of(prompt: list[int], pairs: list[tuple[list[int], list[int]]], length: int) -> tuple[np.ndarray, np.ndarray]:
    """Give ids and labels, int64 [batch, token], padded on the right."""
    ids = np.zeros((len(pairs), length), np.int64)
    labels = np.full((len(pairs), length), -100, np.int64)
    for row, (question, answer) in enumerate(pairs):
        tokens = prompt + question + answer
        start = len(prompt) + len(question)
        ids[row, : len(tokens)] = tokens
        labels[row, start - 1 : len(tokens) - 1] = answer
    return ids, labels
