"""Where kernels are tested: on a GPU, or on the CPU through Triton's interpreter."""

from __future__ import annotations

import pytest
import torch

from headscope.kernels.backend import INTERPRETED, triton


@pytest.fixture
def device() -> str:
    """The device that Triton's kernels run on here."""
    if triton is None or not (torch.cuda.is_available() or INTERPRETED):
        pytest.skip("kernels need a GPU, or TRITON_INTERPRET=1 from the start")
    return "cpu" if INTERPRETED else "cuda"
