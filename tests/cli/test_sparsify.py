"""``headscope sparsify``: from pages or text to a threshold file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headscope.resources import find
from headscope.sparsity import Thresholds
from tests.cli.command import Outcome

Run = Callable[..., Outcome]
QUICK = ("model=reader", "allocation=uniform", "error_tokens=1", "max_new_tokens=12")


def test_pages_make_a_threshold_file_and_a_table(run: Run) -> None:
    done = run("sparsify", *QUICK, "pages=bundled", "pages.limit=1", "answer=given", "keep=0.6", "out=found.json")
    assert done.code == 0, done.err
    found = Thresholds.load("found.json")
    assert abs(found.keep - 0.6) < 0.02 and found.model["id"] == "reader-22m"
    assert found.provenance["data"] == found.provenance["data"] | {"sequences": 1, "counted": 11}
    assert "reader-22m: 12 layers; 11 tokens of 1 sequences" in done.out
    assert [line.split()[0] for line in done.out.splitlines()[2:9]] == list(found.projections)
    assert "60.0 % of the projections' bytes are read" in done.out and "wrote found.json" in done.out


def test_generate_decodes_with_a_threshold_file(run: Run) -> None:
    page = find("data", "pages", "probe", "011.png")
    made = run("sparsify", *QUICK, "pages=bundled", "pages.limit=1", "answer=given", "keep=0.8", "out=found.json")
    shown = run("generate", "model=reader", f"image={page}", "sparsity=found.json", "max_new_tokens=4")
    assert made.code == shown.code == 0 and "answer 4 tokens" in shown.out
    assert run("generate", "model=reader", f"image={page}", "sparsity=gone.json").code == 2


def test_a_text_counts_whole(run: Run) -> None:
    Path("some.txt").write_text("PRESS wheat planet glad recipe WHO Domain furniture " * 4)
    done = run("sparsify", *QUICK, "text=some.txt", "context=30", "tokens=60", "keep=0.5", "out=found.json")
    assert done.code == 0, done.err
    assert Thresholds.load("found.json").provenance["data"]["counted"] == 60


def test_what_is_missing_or_wrong_is_said_before_a_model_is_loaded(run: Run) -> None:
    neither = run("sparsify", "model=reader")
    assert neither.code == 2 and "give either text=FILE or pages=..." in neither.err
    keep = run("sparsify", "model=reader", "pages=bundled", "keep=0")
    assert keep.code == 2 and "`keep` must be the part of the projections' bytes to read, 0.05..1, got 0" in keep.err
    text = run("sparsify", "model=reader", "text=none.txt")
    assert text.code == 2 and "`text` must be a text file in UTF-8, none.txt cannot be read" in text.err
    assert not list(Path().iterdir())
