"""The kernels on a machine without a GPU: their tests through Triton's interpreter, in processes of their own.

The interpreter must be chosen before Triton is imported, so it cannot be switched on in the process of other tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
from packaging.version import Version

from headscope.kernels.backend import INTERPRETED, triton

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(triton is None or INTERPRETED, reason="there is no Triton, or these tests run through it as it is")
@pytest.mark.parametrize(
    "operation", ["decode", "verify", "gather", "append", "linear", "rotate", "tail", "sparse_linear"]
)
def test_the_kernels_pass_their_tests_through_the_interpreter(operation: str) -> None:
    if Version(triton.__version__) < Version("3.7") and Version(numpy.__version__) >= Version("2.4"):
        pytest.skip("the interpreter of Triton 3.6 fails on numpy 2.4")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-m",
            "gpu",
            "-p",
            "no:cacheprovider",
            f"tests/kernels/test_{operation}.py",
        ],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "passed" in done.stdout and "skipped" not in done.stdout
