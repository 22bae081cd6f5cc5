"""The bundled pages and model are what they promise to be."""

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from headscope.evaluate.answers import answer_pages
from headscope.evaluate.words import words_right
from headscope.page.image import decode
from headscope.page.source import bundled
from headscope.probing.prompt import ask
from headscope.resources import find

PAGES = find("data", "pages")
COUNTS = {"probe": 40, "evaluation": 100}


def records(split: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (PAGES / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def draw() -> Any:
    """The script that draws the pages."""
    sys.path.insert(0, str(PAGES))
    try:
        module = ModuleType("draw")
        module.__file__ = str(PAGES / "draw.py")
        sys.modules["draw"] = module  # dataclasses look their module up
        exec(compile((PAGES / "draw.py").read_text(encoding="utf-8"), module.__file__, "exec"), module.__dict__)
        yield module
    finally:
        sys.path.remove(str(PAGES))
        for name in ("draw", "content"):
            sys.modules.pop(name, None)


@pytest.mark.parametrize("split", COUNTS)
def test_pages_are_of_all_kinds_and_whole_cells(split: str) -> None:
    found = records(split)
    kinds = [record["kind"] for record in found]
    assert len(found) == COUNTS[split]
    assert min(kinds.count(kind) for kind in ("plain", "receipt", "form", "coloured", "small", "large")) >= 6
    for page in bundled(split):
        assert all(side % 28 == 0 for side in decode(page.source).shape[:2])


def test_pages_are_small_together() -> None:
    assert sum(path.stat().st_size for path in PAGES.rglob("*.png")) < 3_000_000


def test_evaluation_pages_come_from_other_seeds() -> None:
    seeds = [record["seed"] for split in COUNTS for record in records(split)]
    assert len(set(seeds)) == len(seeds) == 140


@pytest.mark.parametrize("split", COUNTS)
def test_the_text_is_that_of_the_words_in_order(split: str) -> None:
    for record in records(split):
        assert record["text"].split() == [word["text"] for word in record["words"]]


@pytest.mark.parametrize("split", COUNTS)
def test_every_box_lies_on_the_page_and_holds_ink(split: str) -> None:
    for page in bundled(split):
        grey = decode(page.source).mean(axis=2)
        for word in page.words or ():
            x0, y0, x1, y1 = (int(side) for side in word.box)
            assert 0 <= x0 < x1 <= grey.shape[1] and 0 <= y0 < y1 <= grey.shape[0]
            assert np.ptp(grey[y0:y1, x0:x1]) > 60, (page.name, word.text)


@pytest.mark.parametrize("split", COUNTS)
def test_the_boxes_hold_all_the_ink_and_no_margin(split: str) -> None:
    """Paper has one colour along a row of pixels, the one at the right edge of the page."""
    for page in bundled(split):
        image = decode(page.source)
        ink = (image != image[:, -1:]).any(axis=2)
        outside = ink.copy()
        for word in page.words or ():
            x0, y0, x1, y1 = (int(side) for side in word.box)
            rows, columns = np.nonzero(ink[y0:y1, x0:x1])
            margins = (rows.min(), columns.min(), y1 - y0 - 1 - rows.max(), x1 - x0 - 1 - columns.max())
            assert max(margins) <= 1, (page.name, word.text)  # the faintest ink rounds to the colour of the paper
            outside[y0:y1, x0:x1] = False
        assert not outside.any(), page.name


def test_evaluation_pages_have_96_cells() -> None:
    for page in bundled("evaluation"):
        height, width = decode(page.source).shape[:2]
        assert height * width == 96 * 28 * 28


def test_evaluation_prompts_are_110_tokens(reader: tuple[Any, Any]) -> None:
    for page in bundled("evaluation")[:6]:
        assert ask(reader[1], [decode(page.source)], "Read the text.")["input_ids"].shape == (1, 110)


@pytest.mark.parametrize("split", COUNTS)
def test_drawing_again_gives_the_same_pages(draw: Any, split: str) -> None:
    """Fonts are matplotlib's: another version of them may draw other pixels, but never other words."""
    for number in range(6):
        chosen = next(each for each in draw.SPLITS if each.name == split)
        drawn = draw.draw_page(*chosen.page(number))
        record = records(split)[number]
        assert drawn.lines == record["text"].split("\n")
        picture = decode(Path(PAGES, record["image"]))
        assert drawn.image.size == picture.shape[1::-1]
        near = np.abs(np.asarray(drawn.image.convert("RGB"), dtype=int) - picture) < 64
        assert near.mean() > 0.97


def test_no_label_of_a_form_is_one_that_the_model_was_trained_on_alone() -> None:
    """A model that cannot see must not be able to guess what a form says."""
    labels = {
        line.split(":")[0]
        for record in records("evaluation")
        if record["kind"] == "form"
        for line in record["text"].split("\n")
    }
    assert len(labels) > 40


def test_the_bundled_model_reads_the_bundled_pages(reader: tuple[Any, Any]) -> None:
    pages = bundled("evaluation")[::6]
    answers = answer_pages(*reader, [decode(page.source) for page in pages], "Read the text.", max_new_tokens=140)
    counts = [words_right(page.text or "", answer) for page, answer in zip(pages, answers, strict=True)]
    assert sum(count.right for count in counts) > 0.9 * sum(count.total for count in counts)


def run_training_script(name: str, *arguments: str) -> str:
    script = str(find("data", "reader", "train", name))
    return subprocess.run([sys.executable, script, *arguments], check=True, capture_output=True, text=True).stdout


def test_the_training_twin_equals_transformers() -> None:
    assert "largest difference" in run_training_script("check_hf.py")


def test_the_bundled_model_assembles_again_from_its_own_weights(reader_path: Path, tmp_path: Path) -> None:
    run_training_script("assemble.py", str(reader_path), str(tmp_path))
    expected, found = weights(reader_path), weights(tmp_path)
    assert expected.keys() == found.keys() and all(torch.equal(expected[name], found[name]) for name in expected)
    for name in ("tokenizer.json", "chat_template.jinja"):
        assert (tmp_path / name).read_bytes() == (reader_path / name).read_bytes()


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return {name: tensor for path in folder.glob("*.safetensors") for name, tensor in load_file(path).items()}
