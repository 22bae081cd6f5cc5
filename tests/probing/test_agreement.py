"""On all bundled pages EasyOCR gives the heads that the pages' own boxes give, and the shipped score file."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from headscope.families import detect
from headscope.page import Page, Word
from headscope.page.image import content_hash, decode
from headscope.page.source import bundled
from headscope.probing.credit import credit, word_cells
from headscope.probing.reading import Reader
from headscope.probing.run import score
from headscope.scores import HeadScores, find_shipped
from headscope.scores.stability import spearman

RECORDED = Path(__file__).parents[1] / "cases" / "easyocr_words.jsonl"  # what EasyOCR 1.7.2 found on the bundled pages


def recorded_words() -> dict[str, list[Word]]:
    entries = [json.loads(line) for line in RECORDED.read_text(encoding="utf-8").splitlines()]
    return {
        entry["image"]: [Word(text, tuple(map(tuple, quad)), sure) for text, quad, sure in entry["words"]]
        for entry in entries
    }


@pytest.fixture(scope="module")
def values(reader: tuple[Any, Any]) -> dict[str, torch.Tensor]:
    """Mean hit scores by the boxes of EasyOCR and by the pages' own, each page read once."""
    found, pages = recorded_words(), bundled("probe")
    reads = Reader(*reader, detect(reader[0].config), "Read the text.", 320)
    sums = {"easyocr": torch.zeros(12, 12).double(), "own": torch.zeros(12, 12).double()}
    for page in pages:
        image = decode(page.source)
        reading = reads.generate(page.name, image)
        for kind, words in (("easyocr", found[content_hash(image)]), ("own", words_of(page))):
            due = credit(reading.answer, words, word_cells(words, reading.picture))
            sums[kind] += score(reads, reading, due).hit
    return {kind: total / len(pages) for kind, total in sums.items()}


def words_of(page: Page) -> list[Word]:
    assert page.words is not None
    return list(page.words)


@pytest.mark.slow
def test_easyocr_and_the_pages_own_boxes_rank_the_best_heads_alike(values: dict[str, torch.Tensor]) -> None:
    own, easyocr = (values[kind].numpy().reshape(-1) for kind in ("own", "easyocr"))
    best = np.argsort(-own)[:40]
    assert spearman(own[best], easyocr[best]) >= 0.97


@pytest.mark.slow
def test_the_shipped_score_file_is_what_the_probe_finds(values: dict[str, torch.Tensor]) -> None:
    shipped = HeadScores.load(find_shipped("reader-22m"))
    assert shipped.probe["ocr"]["name"] == "easyocr" and shipped.probe["pages"] == 40
    torch.testing.assert_close(shipped.values, values["easyocr"].float(), atol=0.02, rtol=0.02)
