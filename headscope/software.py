"""The software at hand: what a result was made with."""

from __future__ import annotations

import platform
from importlib.metadata import version

import headscope


def versions() -> dict[str, str]:
    """Give the versions of headscope, torch, transformers and Python."""
    return {
        "headscope": headscope.__version__,
        "torch": version("torch"),
        "transformers": version("transformers"),
        "python": platform.python_version(),
    }
