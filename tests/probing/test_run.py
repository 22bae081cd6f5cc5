"""The probe as a whole, on the bundled model and on a tiny one of every family."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from headscope.page import Page, Word
from headscope.page.ocr import GivenWords
from headscope.page.source import bundled
from headscope.probing import reading as reading_module
from headscope.probing import run as run_module
from headscope.probing.run import Settings, choose, parse_shard, probe
from headscope.scores import HeadScores
from headscope.scores.merge import merge
from tests.families.tiny import TINY

IMAGES = Path(__file__).parents[1] / "cases" / "img"
SHORT = {"ocr": GivenWords(), "max_new_tokens": 120}


@pytest.fixture(scope="module")
def pages() -> list[Page]:
    """A few of the bundled pages, the smallest."""
    return sorted(bundled("probe"), key=lambda page: len(page.text or ""))[:4]


@pytest.fixture(scope="module")
def whole(reader: tuple[Any, Any], pages: list[Page]) -> HeadScores:
    return probe(*reader, pages, keep_pages=True, **SHORT)


def saved(scores: HeadScores, path: Path, **how: Any) -> bytes:
    scores.save(path, **how)
    return path.read_bytes()


def test_the_bundled_models_reading_heads_stand_out(whole: HeadScores) -> None:
    assert whole.geometry == (12, 12, 4) and whole.probe["credited"] > 20
    tenth = sum(score for *_, score in whole.top(14))
    assert tenth > 0.5 * whole.values.sum().item()
    assert {layer for layer, *_ in whole.top(7)} <= {5, 6, 7, 8, 9, 10, 11}


def test_values_are_the_mean_over_pages_of_either_statistic(
    reader: tuple[Any, Any], pages: list[Page], whole: HeadScores
) -> None:
    assert whole.pages is not None
    mass = probe(*reader, pages, statistic="mass", **SHORT)
    for scores, statistic in ((whole, "hit"), (mass, "mass")):
        mean = sum(getattr(record, statistic) for record in whole.pages) / len(pages)
        torch.testing.assert_close(scores.values, mean.float())


def test_a_second_run_gives_the_same_file_to_the_byte(
    reader: tuple[Any, Any], pages: list[Page], whole: HeadScores, tmp_path: Path
) -> None:
    again = probe(*reader, list(reversed(pages)), keep_pages=True, **SHORT)
    assert saved(again, tmp_path / "b.json") == saved(whole, tmp_path / "a.json")


def test_parts_merge_to_the_file_of_one_run(
    reader: tuple[Any, Any], pages: list[Page], whole: HeadScores, tmp_path: Path
) -> None:
    paths = []
    for part in ("1/3", "2/3", "3/3"):
        paths.append(tmp_path / f"{part[0]}.json")
        probe(*reader, pages, shard=part, **SHORT).save(paths[-1])
    assert saved(merge(paths), tmp_path / "m.json", pages=False) == saved(whole, tmp_path / "w.json", pages=False)


def test_an_interrupted_probe_goes_on_where_it_stopped(
    reader: tuple[Any, Any], pages: list[Page], whole: HeadScores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, stock = [], run_module.probe_page

    def stop_at_third(reader: Any, page: Page, *rest: Any) -> Any:
        if len(read) == 2:
            raise KeyboardInterrupt
        read.append(page.name)
        return stock(reader, page, *rest)

    monkeypatch.setattr(run_module, "probe_page", stop_at_third)
    with pytest.raises(KeyboardInterrupt):
        probe(*reader, pages, state=tmp_path / "p.jsonl", **SHORT)
    read_before, read = read, []
    monkeypatch.setattr(
        run_module, "probe_page", lambda r, page, *rest: read.append(page.name) or stock(r, page, *rest)
    )
    again = probe(*reader, pages, state=tmp_path / "p.jsonl", keep_pages=True, **SHORT)
    assert len(read_before) == 2 and len(read) == 2 and not set(read) & set(read_before)
    assert saved(again, tmp_path / "b.json") == saved(whole, tmp_path / "a.json")


def test_a_bad_page_is_named_and_counted_and_the_rest_is_scored(
    reader: tuple[Any, Any], pages: list[Page], whole: HeadScores, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no picture")
    strip = Page("strip", np.zeros((1, 201, 3), np.uint8), words=(Word.from_box("x", (0, 0, 5, 1)),))
    scores = probe(*reader, [*pages, Page("broken.png", broken, words=()), strip], **SHORT)
    assert [failed.name for failed in scores.failed] == ["broken.png", "strip"]
    assert "200" in scores.failed[1].reason
    assert scores.probe["pages"] == 4 and scores.probe["pages_failed"] == 2
    assert torch.equal(scores.values, whole.values)


def test_the_engine_and_the_model_get_one_upright_picture(
    reader: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A photo stored sideways, 240 x 640 with orientation 6 (CASES B01)."""
    shown: list[Any] = []

    def find(page: Page, image: np.ndarray) -> list[Word]:
        shown.append(image)
        return [Word.from_box("INVOICE", (24, 57, 180, 111)), Word.from_box("42", (190, 57, 251, 111))]

    ask, given = reading_module.ask, []
    monkeypatch.setattr(reading_module, "ask", lambda *of: given.append(of[1][0]) or ask(*of))
    photo = Page("exif6.jpg", IMAGES / "exif6.jpg", text="INVOICE 42")
    scores = probe(*reader, [photo], answer="given", ocr=find, keep_pages=True)
    assert shown[0] is given[0] and shown[0].shape == (240, 640, 3)
    assert scores.pages is not None and scores.pages[0].credited > 1


def test_half_a_picture_never_makes_a_score(reader: tuple[Any, Any], pages: list[Page]) -> None:
    half = Page("trunc.jpg", IMAGES / "trunc.jpg", words=(Word.from_box("INVOICE", (24, 57, 180, 111)),))
    scores = probe(*reader, [half, pages[0]], **SHORT)
    assert [(failed.name, failed.reason[:18]) for failed in scores.failed] == [("trunc.jpg", "damaged or cut off")]
    assert scores.probe["pages"] == 1


def test_a_blank_page_counts_with_zeros(reader: tuple[Any, Any], pages: list[Page], whole: HeadScores) -> None:
    blank = Page("blank", np.full((56, 56, 3), 255, np.uint8), words=())
    scores = probe(*reader, [*pages, blank], **SHORT)
    torch.testing.assert_close(scores.values, whole.values * 4 / 5)


def test_a_probe_that_says_nothing_is_an_error(reader: tuple[Any, Any], pages: list[Page]) -> None:
    blank = Page("blank", np.full((56, 56, 3), 255, np.uint8), words=())
    other = dataclasses.replace(pages[0], words=(Word.from_box("never", (0, 0, 9, 9)),), text=None)
    with pytest.raises(ValueError, match="no pages in `pages`"):
        probe(*reader, [], **SHORT)
    with pytest.raises(ValueError, match="no words found on any of the 1 pages"):
        probe(*reader, [blank], **SHORT)
    with pytest.raises(ValueError, match="answer tokens on 1 pages matched a word"):
        probe(*reader, [other], **SHORT)
    with pytest.raises(ValueError, match="none of the 1 pages could be read; the first: gone.png"):
        probe(*reader, [Page("gone.png", "gone.png", words=())], **SHORT)


@pytest.mark.parametrize("page_text", [None, "given"])
def test_a_given_answer_is_the_pages_own_text(
    reader: tuple[Any, Any], pages: list[Page], page_text: str | None
) -> None:
    page = pages[0] if page_text else dataclasses.replace(pages[0], text=None)
    scores = probe(*reader, [page], answer="given", **SHORT)
    tokenizer = reader[1].tokenizer
    text = page.text or " ".join(word.text for word in page.words or ())
    assert scores.probe["tokens"] == len(tokenizer(text, add_special_tokens=False)["input_ids"])
    assert {layer for layer, *_ in scores.top(5)} <= {5, 6, 7, 8, 9, 10, 11}


@pytest.mark.parametrize("family", sorted(TINY))
@pytest.mark.parametrize("match", ["aligned", "paper"])
def test_every_family_is_probed(family: str, match: str) -> None:
    model, processor = TINY[family]()
    image = np.random.default_rng(0).integers(0, 256, (90, 120, 3), dtype=np.uint8)
    page = Page("page", image, words=(Word.from_box("one", (5, 5, 60, 40)), Word.from_box("two", (60, 50, 118, 88))))
    scores = probe(
        model, processor, [page], answer="given", match=match, cells="both", statistic="mass", ocr=GivenWords()
    )
    config = model.config.get_text_config()
    assert scores.values.shape == (config.num_hidden_layers, config.num_attention_heads)
    assert scores.kv_heads == config.num_key_value_heads
    assert (scores.values > 0).all()


def hooks(model: Any) -> int:
    return sum(len(module._forward_pre_hooks) + len(module._forward_hooks) for module in model.modules())


def test_the_model_is_left_as_it_was(reader: tuple[Any, Any], pages: list[Page]) -> None:
    model = reader[0]
    before = hooks(model)
    probe(*reader, pages[:1], **SHORT)
    assert model.model.language_model.config._attn_implementation == "sdpa"
    assert hooks(model) == before


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"match": "fuzzy"}, "`match` must be one of aligned, paper, got 'fuzzy'"),
        ({"statistic": "max"}, "`statistic` must be one of hit, mass"),
        ({"answer": "sampled"}, "`answer` must be one of generate, given"),
        ({"cells": "coarse"}, "`cells` must be one of fine, both"),
        ({"max_new_tokens": 0}, "`max_new_tokens` must be at least 1, got 0"),
    ],
)
def test_a_wrong_setting_is_refused(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Settings(**setting)


def test_limit_and_shard_choose_pages_in_order() -> None:
    pages = [Page(str(number), b"") for number in range(7)]
    assert [page.name for page in choose(pages, 5, "2/2")] == ["1", "3"]
    assert choose(pages, None, "9/9") == []
    assert parse_shard("3/4") == (3, 4)
    for wrong in ("0/4", "5/4", "1", "a/b", "1/", "-1/2", "1/0"):
        with pytest.raises(ValueError, match="`shard` must be i/n"):
            parse_shard(wrong)
    with pytest.raises(ValueError, match="`limit` must be at least 1, got 0"):
        choose(pages, 0, None)
