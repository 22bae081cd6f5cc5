"""Placement does not change the scores (CASES B35): parts on disk, on several devices, in another dtype."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForImageTextToText

from headscope.families import attention_modules
from headscope.page import Page
from headscope.page.ocr import GivenWords
from headscope.page.source import bundled
from headscope.probing.run import probe
from headscope.scores import HeadScores

SHORT = {"ocr": GivenWords(), "max_new_tokens": 60}


@pytest.fixture(scope="module")
def pages() -> list[Page]:
    return sorted(bundled("probe"), key=lambda page: len(page.text or ""))[:2]


@pytest.fixture(scope="module")
def expected(reader: tuple[Any, Any], pages: list[Page]) -> HeadScores:
    return probe(*reader, pages, **SHORT)


def split(first: Any, second: Any) -> dict[str, Any]:
    """A map with the upper half of the decoder's layers elsewhere than the rest."""
    layers = {f"model.language_model.layers.{layer}": first if layer < 6 else second for layer in range(12)}
    rest = ("model.visual", "model.language_model.embed_tokens", "model.language_model.rotary_emb", "lm_head")
    return {**layers, **dict.fromkeys(rest, first), "model.language_model.norm": second}


def loaded(path: Path, device_map: dict[str, Any], **how: Any) -> Any:
    return AutoModelForImageTextToText.from_pretrained(path, dtype=torch.float32, device_map=device_map, **how).eval()


def test_layers_that_wait_on_disk_are_scored_alike(
    reader: tuple[Any, Any], reader_path: Path, pages: list[Page], expected: HeadScores, tmp_path: Path
) -> None:
    model = loaded(reader_path, split("cpu", "disk"), offload_folder=tmp_path)
    assert attention_modules(model)[11].q_proj.weight.is_meta
    scores = probe(model, reader[1], pages, **SHORT)
    assert scores.values.device.type == "cpu"
    torch.testing.assert_close(scores.values, expected.values)


@pytest.mark.gpu
def test_layers_on_two_devices_are_scored_alike(
    reader: tuple[Any, Any], reader_path: Path, pages: list[Page], expected: HeadScores
) -> None:
    scores = probe(loaded(reader_path, split(0, "cpu")), reader[1], pages, **SHORT)
    torch.testing.assert_close(scores.values, expected.values)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_gpu_finds_the_same_heads(
    reader: tuple[Any, Any], reader_path: Path, pages: list[Page], expected: HeadScores, dtype: torch.dtype
) -> None:
    model = AutoModelForImageTextToText.from_pretrained(reader_path, dtype=dtype, device_map="cuda").eval()
    scores = probe(model, reader[1], pages, **SHORT)
    best, found = ({(layer, head) for layer, head, _ in each.top(7)} for each in (expected, scores))
    assert len(best & found) >= 6


@pytest.mark.parametrize("dtype", [torch.bfloat16])
def test_half_precision_finds_the_same_heads(
    reader: tuple[Any, Any], reader_path: Path, pages: list[Page], expected: HeadScores, dtype: torch.dtype
) -> None:
    model = AutoModelForImageTextToText.from_pretrained(reader_path, dtype=dtype).eval()
    scores = probe(model, reader[1], pages, **SHORT)
    best, found = ({(layer, head) for layer, head, _ in each.top(7)} for each in (expected, scores))
    assert len(best & found) >= 6 and scores.probe["dtype"] == "bfloat16"
