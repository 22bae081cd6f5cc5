"""The OCR cache: what an engine read in a picture, one JSON file per picture, engine, version and options."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headscope.files import write_atomically
from headscope.page import Page, Word
from headscope.page.engine import Engine, plain_word
from headscope.page.image import content_hash

log = logging.getLogger(__name__)

FORMAT = "headscope.words/1"  # counts up when reading order or word splitting changes: old entries are then read anew


def cache_folder() -> Path:
    """Give the folder for caches: $HEADSCOPE_CACHE, else $XDG_CACHE_HOME/headscope, else ~/.cache/headscope."""
    if own := os.environ.get("HEADSCOPE_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "headscope"


@dataclass(frozen=True)
class Cached(Engine):
    """An engine whose results are kept in `folder`; a damaged entry is read anew, an engine's failure is never kept."""

    engine: Engine
    folder: str | Path

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.engine.name

    @property
    def version(self) -> str:
        return self.engine.version

    @property
    def options(self) -> dict[str, Any]:
        return self.engine.options

    def read(self, page: Page, image: np.ndarray) -> list[Word]:
        read = getattr(self.engine, "read", self.engine)
        if not getattr(self.engine, "cacheable", True):
            return read(page, image)
        key = self._key(image)
        path = Path(self.folder) / f"{hashlib.sha256(_json(key).encode()).hexdigest()}.json"
        words = _load(path, key)
        if words is None:
            words = read(page, image)
            _store(path, key, words)
        return words

    def _key(self, image: np.ndarray) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "engine": self.name,
            "version": self.version,
            "options": self.options,
            "image": content_hash(image),
        }


def _load(path: Path, key: dict[str, Any]) -> list[Word] | None:
    try:
        entry = json.loads(path.read_bytes())
        words = [plain_word(word["text"], word["quad"], word["confidence"]) for word in entry.pop("words")]
        if _json(entry) != _json(key):
            raise ValueError("it belongs to another picture")
        return words
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        log.warning("the cached words in %s are damaged (%s); the page is read anew", path, error)
        return None


def _store(path: Path, key: dict[str, Any], words: Sequence[Word]) -> None:
    entry = [{"text": word.text, "quad": word.quad, "confidence": word.confidence} for word in words]
    try:
        write_atomically(path, _json({**key, "words": entry}))
    except OSError as error:
        log.warning("words are not cached: %s", error)


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, allow_nan=False)
