"""`headscope evaluate sweep` prints a table, writes file and plot, and goes on where it stopped."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from tests.cli.command import Outcome

Run = Callable[..., Outcome]
SWEEP = ("evaluate", "sweep", "model=reader", "pages.limit=2", "seeds=2", "max_new_tokens=8", "out=s.json")


def test_a_sweep_goes_on_where_it_stopped(run: Run, stand: Path) -> None:
    first = run(*SWEEP, "rules=[sparsemm]", "per_head=[64]")
    assert first.code == 0, first.err
    assert first.out.count("read ") == 2 and Image.open("s.png").size[0] > 600
    second = run(*SWEEP, "rules=[sparsemm,random]", "per_head=[64]")
    assert second.out.count("read ") == 2
    document = json.loads((stand / "s.json").read_text())
    assert [point["rule"] for point in document["points"]] == ["full", "sparsemm", "random", "random"]
    assert document["prompt_tokens"] == 110 and document["hardware"] and document["software"]
    table = second.out.split("\n\n")[1].splitlines()
    assert [line.split()[0] for line in table[1:4]] == ["full", "sparsemm", "random"]


def test_other_pages_or_questions_begin_anew(run: Run, stand: Path) -> None:
    run(*SWEEP, "rules=[sparsemm]", "per_head=[64]")
    again = run(*SWEEP, "rules=[sparsemm]", "per_head=[64]", "pages.limit=1")
    assert again.out.count("read ") == 2
    assert json.loads((stand / "s.json").read_text())["pages"] == 1
