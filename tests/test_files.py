"""A result file is written whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from headscope.files import write_atomically


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@pytest.mark.parametrize("content", ["é\n", b"\x00\xff", ""])
def test_a_file_holds_what_was_written(tmp_path, content):
    assert write_atomically(tmp_path / "out.json", content) == tmp_path / "out.json"
    assert (tmp_path / "out.json").read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert names(tmp_path) == ["out.json"]


def test_missing_folders_are_made_and_an_old_file_is_replaced(tmp_path):
    path = tmp_path / "a" / "b" / "out.json"
    write_atomically(path, "old")
    write_atomically(path, "new")
    assert path.read_text() == "new"


def test_permissions_are_those_of_a_normal_new_file(tmp_path):
    (tmp_path / "normal").write_text("")
    write_atomically(tmp_path / "atomic", "")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("normal", "atomic")]
    assert modes[0] == modes[1]


def test_a_link_keeps_pointing_to_its_file(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_atomically(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_write_that_breaks_off_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, failure):
    path = tmp_path / "out.json"
    path.write_text("old")

    def broken(_):
        raise failure

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises((OSError, KeyboardInterrupt)) as caught:
        write_atomically(path, "new")
    if isinstance(failure, OSError):
        message = str(caught.value)
        assert (
            message == f"`{path}` could not be written: No space left on device; what stood there before is unchanged"
        )
    assert path.read_text() == "old"
    assert names(tmp_path) == ["out.json"]


def test_a_real_size_limit_leaves_nothing_half_written(tmp_path):
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000));"
        "from headscope.files import write_atomically; write_atomically(sys.argv[1], 'x' * 5000)"
    )
    root = Path(__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "out")], cwd=root, capture_output=True, text=True)
    assert "could not be written: File too large" in done.stderr
    assert names(tmp_path) == []


def test_a_folder_or_a_device_is_never_replaced(tmp_path):
    for path in (tmp_path, Path(os.devnull)):
        with pytest.raises(OSError, match="not a plain file"):
            write_atomically(path, "x")


def test_a_parent_that_is_a_file_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"`.*file/out.json` could not be written: "):
        write_atomically(tmp_path / "file" / "out.json", "x")
