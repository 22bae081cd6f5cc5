"""One job stands where the person stands; each job of a multirun has a folder of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from headscope.cli import verbs
from headscope.cli.place import Place
from tests.cli.command import Outcome

Run = Callable[..., Outcome]


def note(place: Place, /, *, a: Path, b: Path, k: int | None, moves: int) -> None:
    """Stand in for a verb: read a relative input, write a relative result, say where it ran."""
    if moves == 13:
        raise ValueError("thirteen is not for us")
    result = place.result(a, str(b) if "-m" in os.environ.get("LINE", "") and "/" in str(b) else None)
    result.parent.mkdir(parents=True, exist_ok=True)
    text = Path("input.txt").read_text()
    result.write_text(json.dumps({"cwd": str(Path.cwd()), "input": text, "k": k, "moves": moves}))


@pytest.fixture(autouse=True)
def noting(stand: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (stand / "input.txt").write_text("hello")
    monkeypatch.setattr(verbs, "function", lambda name: note)


def files(folder: Path, pattern: str = "*.json") -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob(pattern))


def test_a_run_leaves_its_result_and_nothing_else(run: Run, stand: Path) -> None:
    assert run("diff", "a=out/r.json", "b=x", "k=1e1").code == 0
    assert files(stand, "*") == ["input.txt", "out", "out/r.json"]
    assert json.loads((stand / "out" / "r.json").read_text()) == {
        "cwd": str(stand),
        "input": "hello",
        "k": 10,
        "moves": 10,
    }


@pytest.mark.parametrize("setting", ["hydra.job.chdir=true", "hydra.run.dir=elsewhere"])
def test_relative_paths_mean_where_the_person_stands_whatever_hydra_does(run: Run, stand: Path, setting: str) -> None:
    assert run("diff", "a=r.json", "b=x", setting).code == 0
    assert json.loads((stand / "r.json").read_text())["cwd"] == str(stand)


def test_each_job_of_a_multirun_writes_into_its_own_folder(run: Run, stand: Path) -> None:
    shown = run("diff", "-m", "a=out/r.json", "b=x", "moves=1,2", "hydra.sweep.dir=sweep", "hydra.job.chdir=true")
    assert shown.code == 0
    assert files(stand) == ["sweep/0/r.json", "sweep/1/r.json"]
    assert [json.loads((stand / path).read_text())["moves"] for path in files(stand)] == [1, 2]
    assert "job 0: a=out/r.json b=x moves=1" in shown.out


def test_shards_of_a_multirun_lie_beside_out(run: Run, stand: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINE", "-m")

    def part(place: Place, /, *, a: Path, b: str, k: int | None, moves: int) -> None:
        place.result(a, b).write_text("{}")

    monkeypatch.setattr(verbs, "function", lambda name: part)
    monkeypatch.setattr(Place, "result", sharded(Place.result))
    assert run("diff", "-m", "a=r.json", "b=1/2,2/2", "hydra.sweep.dir=sweep").code == 0
    assert files(stand, "r.*") == ["r.1-of-2.json", "r.2-of-2.json"]


def sharded(result: Callable[..., Path]) -> Callable[..., Path]:
    """Take the key ``b`` of these tests for the probe's ``shard``."""

    def place(self: Place, out: Path, shard: str | None = None) -> Path:
        return result(
            Place(self.folder, self.job, tuple({"b": "shard"}.get(key, key) for key in self.swept)), out, shard
        )

    return place


def test_a_failed_job_is_one_line_and_the_others_still_run(run: Run, stand: Path) -> None:
    shown = run("diff", "-m", "a=r.json", "b=x", "moves=13,2,13", "hydra.sweep.dir=sweep")
    assert shown.code == 2
    assert shown.err.splitlines() == ["headscope: error: thirteen is not for us"] * 2
    assert files(stand) == ["sweep/1/r.json"]


def test_the_submitit_launcher_runs_jobs_in_processes_of_their_own(run: Run, stand: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    words = ["a=r.json", "b=x", "moves=1,2", "hydra.sweep.dir=sweep", "hydra/launcher=submitit_local"]
    assert run("diff", "-m", *words).code == 0
    assert files(stand, "r.json") == ["sweep/0/r.json", "sweep/1/r.json"]


def test_an_error_in_a_submitit_job_comes_back(run: Run, stand: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    shown = run("diff", "-m", "a=r.json", "b=x", "moves=13", "hydra/launcher=submitit_local", "hydra.sweep.dir=sweep")
    assert shown.code == 2
    assert shown.err.splitlines()[-1] == "headscope: error: thirteen is not for us"
