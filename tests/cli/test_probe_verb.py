"""The verb ``probe``, with the bundled model: files, resuming, shards, processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from headscope.probing import run as probing
from headscope.scores import HeadScores
from tests.cli.command import Outcome

Run = Callable[..., Outcome]
FEW = ("model=reader", "ocr=words", "pages.limit=2", "progress=false")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The score file of one plain run."""
    folder = tmp_path_factory.mktemp("whole")
    command = [sys.executable, "-m", "headscope", "probe", *FEW, f"out={folder}/x.json"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, cwd=folder, env=environment, capture_output=True)
    assert sorted(path.name for path in folder.iterdir()) == ["x.json", "x.png"]
    return (folder / "x.json").read_bytes()


def test_a_run_writes_scores_a_head_map_and_a_page_and_prints_the_best_heads(
    run: Run, stand: Path, whole: bytes
) -> None:
    shown = run("probe", *FEW, "report=true", "report_pages=1")
    assert shown.code == 0
    assert sorted(path.name for path in (stand / "scores").iterdir()) == [
        "reader-22m.html",
        "reader-22m.json",
        "reader-22m.png",
    ]
    assert (stand / "scores" / "reader-22m.json").read_bytes() == whole
    best = HeadScores.load(stand / "scores" / "reader-22m.json").top(1)[0]
    assert shown.out.splitlines()[1].split()[:3] == ["1", str(best[0]), str(best[1])]
    assert "pages 2, failed 0; words " in shown.out
    assert shown.out.endswith("wrote scores/reader-22m.json, scores/reader-22m.png, scores/reader-22m.html\n")


def test_ctrl_c_keeps_what_is_done_and_the_same_command_goes_on(
    run: Run, stand: Path, whole: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe_page, done = probing.probe_page, []

    def interrupted(reader: Any, page: Any, *rest: Any) -> Any:
        if done:
            raise KeyboardInterrupt
        done.append(page.name)
        return probe_page(reader, page, *rest)

    monkeypatch.setattr(probing, "probe_page", interrupted)
    shown = run("probe", *FEW, "out=x.json")
    assert (shown.code, shown.err.count("\n")) == (130, 1)
    assert "the same command goes on from there" in shown.err
    assert [path.name for path in stand.iterdir()] == ["x.progress.jsonl"]

    left = []
    monkeypatch.setattr(probing, "probe_page", lambda *of: (left.append(of[1].name), probe_page(*of))[1])
    assert run("probe", *FEW, "out=x.json").code == 0
    assert len(left) == 1
    assert left != done
    assert (stand / "x.json").read_bytes() == whole
    assert sorted(path.name for path in stand.iterdir()) == ["x.json", "x.png"]


def test_the_parts_of_a_multirun_merge_to_the_file_of_one_run(run: Run, stand: Path, whole: bytes) -> None:
    assert run("probe", "-m", *FEW, "shard=1/2,2/2", "out=x.json", "hydra.sweep.dir=sweep").code == 0
    assert sorted(path.name for path in stand.glob("x.*")) == ["x.1-of-2.json", "x.2-of-2.json"]
    shown = run("merge", "parts=x.*-of-*.json", "out=deep/x.json")
    assert shown.out.endswith("merged 2 parts into deep/x.json\n")
    assert (stand / "deep" / "x.json").read_bytes() == whole


def test_submitit_jobs_over_shards_merge_to_the_file_of_one_run(run: Run, stand: Path, whole: bytes) -> None:
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    words = ["shard=1/2,2/2", "out=x.json", "hydra.sweep.dir=sweep", "hydra/launcher=submitit_local"]
    assert run("probe", "-m", *FEW, *words).code == 0
    assert run("merge", "parts=[x.1-of-2.json,x.2-of-2.json]", "out=x.json").code == 0
    assert (stand / "x.json").read_bytes() == whole


def test_two_processes_of_a_torchrun_write_the_file_of_one_run(stand: Path, whole: bytes) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*torchrun, "-m", "headscope", "probe", *FEW, "out=x.json"]
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=stand, env=one_thread, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("wrote x.json") == 1
    assert (stand / "x.json").read_bytes() == whole
    assert sorted(path.name for path in stand.iterdir()) == ["x.json", "x.png"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pages=empty"], "empty"),
        (["pages.limit=0"], "`limit` must be"),
        (["shard=3/2"], "`shard` must be i/n"),
        (["out=."], "`out` must be a file"),
        (["model=empty"], "config.json"),
        (["device=nowhere"], "`device`"),
        (["dtype=float7"], "`dtype` must be one of"),
        (["match=exact"], "`match` must be one of aligned, paper, got 'exact'"),
        (["max_new_tokens=0"], "`max_new_tokens` must be at least 1"),
        (["pages=blank.png", "ocr=words"], "needs pages with word boxes"),
        (["pages=blank.png", "ocr=words", "out=deep/down/x.json"], "needs pages with word boxes"),
        (["pages=blank.jsonl", "ocr=words", "out=deep/down/x.json"], "no words found on any of the 1 pages"),
        (["pages=bad.png", "out=deep/x.json"], "none of the 1 pages could be read; the first: bad.png: not a picture"),
        (["pages.limit=1", "ocr=absent", "out=deep/x.json"], "needs the package"),
        (["out=x.png"], "each file must have a path of its own, x.png was given for two"),
        (["report=true", "report_pages=-1"], "`report_pages` must be at least 0, got -1"),
        (["model=/m/epoch=3/x"], "`model`: nothing found at /m/epoch=3/x"),
        (['model="/m/epoch=3/x"'], "`model`: nothing found at /m/epoch=3/x"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(
    run: Run, stand: Path, words: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from PIL import Image

    (stand / "empty").mkdir()
    Image.new("RGB", (56, 56), "white").save(stand / "blank.png")
    (stand / "blank.jsonl").write_text('{"image": "blank.png", "words": []}\n')
    (stand / "bad.png").write_text("no picture")
    given = {path.name for path in stand.iterdir()}
    if "ocr=absent" in words:
        words = [word.replace("absent", "easyocr") for word in words]
        monkeypatch.setattr("headscope.page.ocr.version", absent)
    model = [] if words[0].startswith("model=") else ["model=reader"]
    shown = run("probe", *model, *words, "progress=false")
    assert (shown.code, shown.err.count("\n")) == (2, 1), shown.err
    assert message in shown.err
    assert {path.name for path in stand.iterdir()} == given


def absent(package: str) -> str:
    raise PackageNotFoundError(package)
