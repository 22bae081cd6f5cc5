"""Processes share pages and give each other what they found."""

from pathlib import Path

import pytest

from headscope.probing.ranks import ALONE, Ranks


def test_the_parts_of_all_ranks_are_all_pages_once() -> None:
    parts = [Ranks(rank, 3).share(range(10)) for rank in range(3)]
    assert sorted(page for part in parts for page in part) == list(range(10))


def test_alone_shares_and_gathers_nothing_away() -> None:
    assert ALONE.share([1, 2]) == [1, 2]
    assert ALONE.gather([1], ["x"]) == ([1], ["x"])


def test_the_place_comes_from_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Ranks.from_environment() == ALONE
    for name, value in {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    assert Ranks.from_environment() == Ranks(3, 4, 1) and not Ranks.from_environment().first


def test_each_rank_keeps_its_progress_apart() -> None:
    paths = {Ranks(rank, 2).own_file("x.progress.jsonl") for rank in range(2)}
    assert len(paths) == 2 and ALONE.own_file("x") == Path("x") and ALONE.own_file(None) is None
