"""`headscope generate ... offload=true` gives the same answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headscope.resources import find
from tests.cli.command import Outcome

Run = Callable[..., Outcome]
PAGE = str(find("data", "pages", "probe", "011.png"))
GENERATE = ("generate", "model=reader", f"image={PAGE}", "dtype=float32", "max_new_tokens=12")


def test_the_answer_is_the_same_with_the_full_cache_in_the_cpus_memory(run: Run, stand: Path) -> None:
    plain = run(*GENERATE)
    shown = run(*GENERATE, "draft=head_budget", "window=16", "per_head=48", "offload=true")
    assert shown.code == 0, shown.err
    assert shown.out.split("\n\nprompt")[0] == plain.out.split("\n\nprompt")[0]
    assert "the full cache is in the CPU's memory" in shown.out


def test_without_a_draft_it_is_refused(run: Run, stand: Path) -> None:
    shown = run(*GENERATE, "offload=true")
    assert (shown.code, shown.err.count("\n")) == (2, 1)
    assert "`offload` must be false without a draft" in shown.err
