"""Results go where the person asked, and no job overwrites another's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headscope.cli.place import Place, check_writable

OUT = Path("scores/x.json")
JOB = Place(Path("/sweep/0"), ("match=paper", "shard=1/2"), ("match", "shard"))


def test_a_single_run_writes_where_out_says() -> None:
    assert Place().result(OUT) == OUT


def test_a_part_is_named_after_its_shard() -> None:
    assert Place().result(OUT, "1/2") == Path("scores/x.1-of-2.json")


def test_a_job_of_a_multirun_writes_into_its_own_folder() -> None:
    assert Place(Path("/sweep/0"), (), ("match",)).result(OUT) == Path("/sweep/0/x.json")


def test_the_parts_of_a_multirun_over_shards_lie_beside_out() -> None:
    assert Place(Path("/sweep/0"), (), ("shard",)).result(OUT, "2/2") == Path("scores/x.2-of-2.json")


def test_parts_that_another_key_is_swept_with_do_not_meet() -> None:
    assert JOB.result(OUT, "1/2") == Path("/sweep/0/x.1-of-2.json")


def test_progress_is_kept_beside_out_for_the_same_command_only() -> None:
    assert Place().state(OUT) == Path("scores/x.progress.jsonl")
    assert Place().state(OUT, "1/2") == Path("scores/x.1-of-2.progress.jsonl")
    again = Place(Path("/sweep/elsewhere"), JOB.job, JOB.swept)
    other = Place(Path("/sweep/0"), ("match=aligned", "shard=1/2"), JOB.swept)
    assert JOB.state(OUT, "1/2").parent == OUT.parent
    assert JOB.state(OUT, "1/2") == again.state(OUT, "1/2") != other.state(OUT, "1/2")


def test_a_file_that_could_not_be_written_is_refused_before_any_work(stand: Path) -> None:
    check_writable([Path("deep/down/x.json")])
    assert not Path("deep").exists()
    (stand / "file").touch()
    (stand / "folder").mkdir()
    with pytest.raises(ValueError, match="`out` must be a file, got the folder folder"):
        check_writable([Path("folder")])
    with pytest.raises(ValueError, match="`out` must be a file, got the device /dev/null"):
        check_writable([Path("/dev/null")])
    with pytest.raises(ValueError, match="each file must have a path of its own, .*here/x.png was given for two"):
        check_writable([Path("x.png"), Path("x.html"), stand / "x.png"])
    with pytest.raises(ValueError, match="cannot write file/x.json: .*file is not a folder"):
        check_writable([Path("file/x.json")])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission(stand: Path) -> None:
    stand.chmod(0o500)
    with pytest.raises(PermissionError, match="cannot write x.json: no permission to write in"):
        check_writable([Path("x.json")])
