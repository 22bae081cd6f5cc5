"""`headscope evaluate acceptance` measures what its file does not hold yet."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.cli.command import Outcome

Run = Callable[..., Outcome]
ASKED = ("evaluate", "acceptance", "model=reader", "pages.limit=3", "prompts=1", "max_new_tokens=5", "out=a.json")
SMALL = (*ASKED, "tasks=[page]", "per_head=[48]", "gammas=[3]")


def test_what_is_known_is_not_measured_again(run: Run, stand: Path) -> None:
    shown = run(*SMALL, "drafts=[head_budget]")
    assert shown.code == 0 and "page: head_budget, 48 tokens a head, gamma 3: next token" in shown.out, shown.err
    shown = run(*SMALL, "drafts=[head_budget,prompt_lookup]")
    assert shown.code == 0 and "page: prompt_lookup, gamma 3" in shown.out and "page: head_budget" not in shown.out
    document = json.loads((stand / "a.json").read_text())
    assert [point["draft"] for point in document["points"]] == ["head_budget", "prompt_lookup"]
    assert document["pages"] == 3 and len(document["points"][0]["counts"]) == 3 and document["software"]
    assert "page: " not in run(*SMALL, "drafts=[head_budget]").out


def test_an_unknown_draft_is_one_line(run: Run, stand: Path) -> None:
    shown = run(*SMALL, "drafts=[fast]")
    assert (shown.code, shown.err.count("\n")) == (2, 1) and "`drafts` must be of head_budget" in shown.err
