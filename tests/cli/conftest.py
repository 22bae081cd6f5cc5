"""What the tests of the command line share: a folder to stand in, and a way to run a command there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headscope.cli.main import main
from tests.cli.command import Outcome


@pytest.fixture
def stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in an empty folder."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))  # for the processes that a test starts
    monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)
    return folder


@pytest.fixture
def run(stand: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run ``headscope`` with these words in this process."""

    def command(*words: str) -> Outcome:
        capsys.readouterr()
        code = main(words)
        shown = capsys.readouterr()
        return Outcome(code, shown.out, shown.err)

    return command
