"""What all tests share: the bundled model, loaded once, and a cache folder of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from headscope.resources import find


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Several threads on few cores make small models slower, and results depend on their number."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Keep the person's own cache out of the tests, and the tests out of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADSCOPE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def reader_path() -> Path:
    """The bundled model's folder."""
    return find("data", "reader")


@pytest.fixture(scope="session")
def reader(reader_path: Path) -> tuple[Any, Any]:
    """The bundled model in fp32 and its processor."""
    from transformers import AutoModelForImageTextToText, AutoProcessor

    model = AutoModelForImageTextToText.from_pretrained(reader_path, dtype=torch.float32).eval()
    return model, AutoProcessor.from_pretrained(reader_path)
