"""Engines find words in pixels of the decoded page; most tests put a fake reader in their place."""

from __future__ import annotations

import json
import logging
import sys
import types
import warnings
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from headscope.families.grid import Axis, Grid
from headscope.page import Page, Word, ocr
from headscope.page.image import decode
from headscope.page.ocr import Cached, EasyOCR, GivenWords, RapidOCR

IMAGES = Path(__file__).parents[1] / "cases" / "img"
PAGE = Page("page", b"")
IMAGE = np.zeros((20, 60, 3), np.uint8)
QUAD = [
    [np.int32(14), np.int32(2)],
    [np.int32(54), np.int32(2)],
    [np.int32(54), np.int32(12)],
    [np.int32(14), np.int32(12)],
]
NOTHING = SimpleNamespace(boxes=None, txts=None, scores=None)


def use(monkeypatch, easyocr=None, rapidocr=None) -> None:
    """Put functions image -> engine's own result in place of the two readers."""
    monkeypatch.setattr(ocr, "_easyocr", lambda languages, gpu: SimpleNamespace(readtext=easyocr))
    monkeypatch.setattr(ocr, "_rapidocr", lambda threads: rapidocr)


def read(engine, name: str) -> list[Word]:
    page = Page(name, IMAGES / name)
    return engine(page, decode(page.source))


def near(box, expected, tolerance: float = 8) -> bool:
    return all(abs(a - b) <= tolerance for a, b in zip(box, expected, strict=True))


# the real engines, on small pictures


@pytest.mark.ocr
def test_easyocr_reads_a_turned_photo_in_the_upright_frame():
    engine = EasyOCR()
    before, path = torch.get_num_threads(), list(sys.path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        words = read(engine, "exif6.jpg")
    assert [word.text for word in words] == ["INVOICE", "42"]
    left, right = words[0].box, words[1].box
    assert near((*left[:2], *right[2:]), (24, 57, 251, 111))
    assert left[2] < right[0]
    assert torch.get_num_threads() == before
    assert sys.path == path
    plain = [{"text": word.text, "quad": word.quad, "confidence": word.confidence} for word in words]
    assert json.loads(json.dumps(plain)) == [
        {**word, "quad": [list(corner) for corner in word["quad"]]} for word in plain
    ]


@pytest.mark.ocr
def test_easyocr_reads_tiny_pictures_and_finds_nothing_on_a_dot():
    engine = EasyOCR(granularity="line")
    (word,) = read(engine, "tiny20x60.png")
    assert word.text == "Hi 5"
    assert read(engine, "1x1.png") == read(engine, "1x200.png") == []


@pytest.mark.ocr
def test_easyocr_finds_the_ends_of_a_long_strip_in_its_own_pixels():
    left, right = read(EasyOCR(), "strip_2000x24.png")
    assert (left.text, right.text) == ("left", "right")
    assert near(left.box[::2], (17, 51), 4)
    assert near(right.box[::2], (1796, 1842), 4)


@pytest.mark.ocr
def test_rapidocr_reads_cmyk_and_gives_nothing_where_it_fails(caplog):
    engine = RapidOCR(granularity="line")
    (line,) = read(engine, "cmyk.jpg")
    assert line.text == "INVOICE 42"
    assert near(line.box, (24, 57, 251, 111))
    assert all(type(number) is float for corner in line.quad for number in corner)
    with caplog.at_level(logging.WARNING):
        assert read(engine, "strip_10x2010.png") == []
        assert read(engine, "1x1.png") == []
    assert len(caplog.records) == 1
    assert caplog.messages[0].startswith("strip_10x2010.png: rapidocr failed on it (ResizeImgError")


# fakes


@pytest.mark.parametrize("kind", [EasyOCR, RapidOCR])
def test_engines_get_bgr(monkeypatch, kind):
    seen = []
    use(monkeypatch, lambda image: seen.append(image) or [], lambda image: seen.append(image) or NOTHING)
    red = IMAGE + np.array([255, 0, 7], np.uint8)
    assert kind()(PAGE, red) == []
    assert seen[0][0, 0].tolist() == [7, 0, 255]
    assert seen[0].flags.c_contiguous


@pytest.mark.parametrize("kind", [EasyOCR, RapidOCR])
@pytest.mark.parametrize(("granularity", "texts"), [("word", ["ab", "cd", "low"]), ("line", ["ab cd", "low"])])
def test_results_are_plain_in_reading_order_and_of_the_granularity(monkeypatch, kind, granularity, texts):
    low = (np.array(QUAD) + np.array([0, 30])).astype(np.float32)
    found = [(low, np.str_("low"), np.float64(0.5)), (QUAD, "ab cd", np.float32(1)), (QUAD, "  ", 0.1)]
    boxes, strings, scores = zip(*found, strict=True)
    use(
        monkeypatch,
        lambda image: found,
        lambda image: SimpleNamespace(boxes=np.array(boxes), txts=strings, scores=scores),
    )
    words = kind(granularity=granularity)(PAGE, IMAGE)
    assert [word.text for word in words] == texts
    assert all(type(word.text) is str and type(word.confidence) is float for word in words)
    assert all(type(number) is float for word in words for corner in word.quad for number in corner)
    assert words[0].box[:2] == (14, 2)


def test_a_missing_or_undefined_confidence_is_none(monkeypatch):
    use(monkeypatch, lambda image: [(QUAD, "a"), (QUAD, "b", float("nan"))])
    assert [word.confidence for word in EasyOCR()(PAGE, IMAGE)] == [None, None]


@pytest.mark.parametrize("kind", [EasyOCR, RapidOCR])
@pytest.mark.parametrize("error", [ValueError("bad\nshape"), RuntimeError(), AssertionError("resize"), MemoryError()])
def test_an_engine_that_breaks_down_gives_no_words_and_one_warning(monkeypatch, caplog, tmp_path, kind, error):
    def broken(image):
        warnings.warn("noise", stacklevel=1)
        logging.getLogger({"easyocr": "easyocr.easyocr", "rapidocr": "RapidOCR"}[kind.name]).error("noise")
        raise error

    use(monkeypatch, broken, broken)
    with caplog.at_level(logging.WARNING):
        assert Cached(kind(), tmp_path)(Page("p7", b""), IMAGE) == []
    (message,) = caplog.messages
    assert message.startswith(f"p7: {kind.name} failed on it ({type(error).__name__}: ")
    assert "\n" not in message
    assert list(tmp_path.iterdir()) == []


def test_boxes_over_the_edge_stay_as_they_are_and_are_clipped_only_when_mapped_to_cells(monkeypatch):
    side = Axis.proportional(560, 20)
    grid = Grid(side, side, torch.arange(400).reshape(20, 20))
    cells = {(-5, -3, 40, 20): [0, 1], (600, 460, 700, 500): [], (-40, -40, -5, -5): [], (550, 550, 900, 900): [399]}
    found = [(Word.from_box("", box).quad, str(box), 1.0) for box in cells]
    use(monkeypatch, lambda image: found)
    words = EasyOCR(granularity="line")(PAGE, IMAGE)
    assert {word.box: grid.find(word.box).tolist() for word in words} == cells


def test_a_blank_page_between_others_is_no_words(monkeypatch):
    answers = iter(
        [
            NOTHING,
            SimpleNamespace(boxes=np.array([QUAD]), txts=("x",), scores=(1.0,)),
            SimpleNamespace(boxes=np.array([QUAD])),
            NOTHING,
        ]
    )
    use(monkeypatch, rapidocr=lambda image: next(answers))
    assert [len(RapidOCR()(PAGE, IMAGE)) for _ in range(4)] == [0, 1, 0, 0]


def test_torch_threads_and_log_levels_come_back_even_after_a_failure(monkeypatch):
    inside = []

    def broken(image):
        inside.append((torch.get_num_threads(), logging.getLogger("easyocr.easyocr").disabled))
        raise RuntimeError

    use(monkeypatch, broken)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        EasyOCR(threads=1)(PAGE, IMAGE)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert inside == [(1, True)]
    assert not logging.getLogger("easyocr.easyocr").disabled


# starting an engine


def fake_easyocr(monkeypatch, reader) -> None:
    monkeypatch.setitem(sys.modules, "easyocr", types.SimpleNamespace(Reader=reader))


def start(languages=("en",), gpu=False):
    return ocr._easyocr.__wrapped__(languages, gpu)


def test_easyocr_takes_its_weights_from_the_offline_package(monkeypatch):
    given = []
    monkeypatch.setitem(
        sys.modules, "easyocr_en_models", types.SimpleNamespace(model_dir=lambda: "/weights", __spec__=1)
    )

    def reader(languages, **options):
        sys.path.append(options["user_network_directory"])
        given.append((languages, options))

    fake_easyocr(monkeypatch, reader)
    path = list(sys.path)
    start()
    languages, options = given[0]
    assert languages == ["en"]
    assert options.pop("user_network_directory").startswith("/")
    assert options == {"gpu": False, "verbose": False, "model_storage_directory": "/weights", "download_enabled": False}
    assert sys.path == path


@pytest.mark.parametrize("languages", [("en",), ("en", "fr")])
def test_easyocr_downloads_without_that_package_or_for_other_languages(monkeypatch, languages, caplog):
    if languages == ("en",):
        monkeypatch.setattr(ocr, "find_spec", lambda name: None)
    given = []
    fake_easyocr(monkeypatch, lambda languages, **options: given.append(options))
    start(languages)
    assert "model_storage_directory" not in given[0]
    assert "download_enabled" not in given[0]
    assert "pip install 'headscope[offline]'" in caplog.text


def test_an_engine_that_does_not_start_is_an_error_and_not_a_bad_page(monkeypatch):
    def reader(languages, **options):
        raise ValueError({"xx"}, "is not supported")

    fake_easyocr(monkeypatch, reader)
    with pytest.raises(ValueError, match=r"EasyOCR does not start for `languages` = \['xx'\].*is not supported"):
        start(("xx",))


@pytest.mark.parametrize(
    ("kind", "command"),
    [("easyocr", r"pip install 'headscope\[offline\]'"), ("rapidocr", r"pip install 'headscope\[rapidocr\]'")],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch, kind, command, tmp_path):
    monkeypatch.setitem(sys.modules, kind, None)
    uncached = getattr(ocr, f"_{kind}").__wrapped__
    monkeypatch.setattr(ocr, f"_{kind}", uncached)
    engine = EasyOCR() if kind == "easyocr" else RapidOCR()
    with pytest.raises(ModuleNotFoundError, match=f"`ocr={kind}` needs the package {kind}.*{command}"):
        engine(PAGE, IMAGE)
    monkeypatch.setattr(ocr, "version", _no_version)
    with pytest.raises(ModuleNotFoundError, match=command):
        Cached(engine, tmp_path)(PAGE, IMAGE)


def _no_version(package):
    raise ocr.PackageNotFoundError(package)


def test_a_gpu_that_is_not_there_is_refused(monkeypatch):
    fake_easyocr(monkeypatch, None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ValueError, match="`gpu` needs a CUDA or MPS device"):
        start(gpu=True)


# words that come with the data, names, options


def test_given_words_are_split_like_any_others_and_keep_their_order():
    words = (Word.from_box("below", (0, 30, 40, 40)), Word.from_box("two words", (0, 0, 90, 20), 1.0))
    page = Page("page", b"", words=words)
    assert [word.text for word in GivenWords()(page, IMAGE)] == ["below", "two", "words"]
    assert GivenWords(granularity="line")(page, IMAGE) == list(words)
    assert GivenWords()(Page("blank", b"", words=()), IMAGE) == []


def test_given_words_need_word_boxes():
    with pytest.raises(ValueError, match="page: `ocr=words` needs pages with word boxes and this one has none"):
        GivenWords()(PAGE, IMAGE)


def test_an_engine_goes_by_name_and_is_cached(monkeypatch, tmp_path):
    monkeypatch.setenv("HEADSCOPE_CACHE", str(tmp_path))
    engine = ocr.engine("easyocr", granularity="line")
    assert engine == Cached(EasyOCR(granularity="line"), tmp_path / "ocr")
    assert (engine.name, engine.version) == ("easyocr", ocr.version("easyocr"))
    assert engine.options == {"granularity": "line", "languages": ["en"], "gpu": False}
    assert ocr.engine("rapidocr").options == {"granularity": "word"}
    assert ocr.engine("words").engine == GivenWords()


def test_unknown_names_and_granularities_are_refused():
    with pytest.raises(
        ValueError, match="`ocr` must be one of easyocr, rapidocr, words, got 'esyocr'; did you mean easyocr"
    ):
        ocr.engine("esyocr")
    for kind in (EasyOCR, RapidOCR, GivenWords):
        with pytest.raises(ValueError, match="`granularity` must be one of word, line, got 'char'"):
            kind(granularity="char")


def test_languages_may_come_as_a_list_or_one_string():
    assert EasyOCR(languages=["en", "fr"]).languages == ("en", "fr")
    assert EasyOCR(languages="en") == EasyOCR()


@pytest.mark.parametrize(("name", "kind"), [("easyocr", EasyOCR), ("rapidocr", RapidOCR), ("words", GivenWords)])
def test_each_config_makes_its_engine_with_the_defaults(name, kind):
    from hydra.utils import instantiate
    from omegaconf import OmegaConf

    config = OmegaConf.load(Path(__file__).parents[2] / "conf" / "ocr" / f"{name}.yaml")
    assert instantiate(config) == kind()
    assert {field.name for field in fields(kind)} == set(config) - {"_target_"}


@pytest.mark.parametrize("module", ["headscope.page.ocr", "headscope.page.image"])
def test_importing_is_light(module):
    import subprocess

    code = f"import sys, {module}; print(sorted({{'torch', 'easyocr', 'rapidocr', 'cv2', 'hydra'}} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
