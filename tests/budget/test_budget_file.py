"""Budget files: readable without headscope, exact, the same every time; a wrong one is refused with what was found."""

from __future__ import annotations

import json
import re

import pytest
import torch

from headscope.budget import Budget, allocate
from headscope.scores import HeadScores

GOLDEN = """{
  "format": "headscope.budget/1",
  "geometry": {
    "layers": 2,
    "kv_heads": 2,
    "heads": 4,
    "head_dim": 32
  },
  "window": 3,
  "prompt": 8,
  "kept": [
    [3, 4],
    [5, 8]
  ],
  "provenance": {
    "rule": "sparsemm",
    "settings": {
      "ratio": 0.1
    },
    "asked": 20,
    "moved": 2,
    "model": {
      "id": "tiny/größe"
    },
    "scores": {},
    "software": {}
  }
}
"""


def golden() -> Budget:
    return Budget(
        torch.tensor([[3, 4], [5, 8]]),
        window=3,
        prompt=8,
        rule="sparsemm",
        settings={"ratio": 0.1},
        model={"id": "tiny/größe", "heads": 4, "head_dim": 32},
        asked=20,
        moved=2,
    )


def test_a_budget_file_looks_like_this(tmp_path):
    golden().save(tmp_path / "new" / "budget.json")
    assert (tmp_path / "new" / "budget.json").read_text(encoding="utf-8") == GOLDEN


def test_all_of_a_plan_survives_the_file(tmp_path):
    scores = HeadScores.from_values(torch.rand(3, 6), 2, id="tiny", config_hash="0123", head_dim=16)
    made = allocate(scores, per_head=40, prompt=60, rule="random", seed=7)
    made.save(tmp_path / "a.json")
    loaded = Budget.load(tmp_path / "a.json")
    loaded.save(tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert torch.equal(loaded.kept, made.kept)
    for part in ("window", "prompt", "rule", "settings", "model", "asked", "moved", "scores", "software"):
        assert getattr(loaded, part) == getattr(made, part), part


def test_a_plan_for_any_prompt_survives_the_file(tmp_path):
    Budget([[3, 4]], 2).save(tmp_path / "a.json")
    assert Budget.load(tmp_path / "a.json").prompt is None


def test_a_reader_needs_no_headscope(tmp_path):
    golden().save(tmp_path / "budget.json")
    found = json.loads((tmp_path / "budget.json").read_text(encoding="utf-8"))
    assert sum(map(sum, found["kept"])) == 20
    assert len(found["kept"]) == found["geometry"]["layers"]
    assert {len(row) for row in found["kept"]} == {found["geometry"]["kv_heads"]}


def test_the_file_names_no_folder(tmp_path):
    HeadScores.from_values([[1.0, 2.0]]).save(tmp_path / "scores.json")
    allocate(tmp_path / "scores.json", per_head=40).save(tmp_path / "budget.json")
    assert str(tmp_path) not in (tmp_path / "budget.json").read_text()


@pytest.mark.parametrize("end", range(3, len(GOLDEN) - 2, 37))
def test_a_file_cut_off_anywhere_is_refused(tmp_path, end):
    (tmp_path / "budget.json").write_text(GOLDEN[:end])
    with pytest.raises(ValueError, match="budget.json`: expected a whole JSON document"):
        Budget.load(tmp_path / "budget.json")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere.json`: expected a budget file, found no file of that name"):
        Budget.load(tmp_path / "nowhere.json")
    with pytest.raises(ValueError, match="expected a budget file, found a folder"):
        Budget.load(tmp_path)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "expected a budget file, found an empty one"),
        ("{}", 'expected "format": "headscope.budget/1", found \'none\'; `headscope allocate` makes'),
        ("[1]", "found a list"),
        (GOLDEN.replace("budget/1", "scores/1"), "found 'headscope.scores/1'"),
        (GOLDEN.replace('"geometry"', '"shape"'), "expected `geometry` to be a dict, found none"),
        (GOLDEN.replace('"kept"', '"keep"'), "expected `kept` to be a list, found none"),
        (GOLDEN.replace('"scores": {}', '"scores": 3'), "expected `scores` to be a dict, found int"),
        (GOLDEN.replace('"layers": 2', '"layers": 28'), "expected 28 rows of `kept`, one a layer, found 2"),
        (GOLDEN.replace('"layers": 2', '"layers": 0'), "expected `geometry.layers` to be a whole number .* found 0"),
        (GOLDEN.replace("[3, 4]", "[3]"), "expected 2 `kept`, one a KV head, in layer 0, found 1"),
        (GOLDEN.replace("[3, 4]", "7"), "expected 2 `kept`, one a KV head, in layer 0, found 7"),
        (
            GOLDEN.replace("[3, 4]", "[3, 4.5]"),
            r"expected whole numbers of tokens in layer 0 of `kept`, found \[3, 4.5\]",
        ),
        (GOLDEN.replace("[3, 4]", "[3, NaN]"), "expected finite numbers, found NaN"),
        (GOLDEN.replace("[3, 4]", "[3, 2]"), "`kept` must be at least 3 and at most 8 tokens .* got 2 at layer 0"),
        (GOLDEN.replace('"window": 3,', ""), "`window` must be a whole number of tokens above 0, got None"),
        (GOLDEN.replace('"prompt": 8', '"prompt": "8"'), "`prompt` must be a whole number of tokens above 0, got '8'"),
        (
            GOLDEN.replace('"asked": 20', '"asked": "many"'),
            "`asked` must be a whole number of tokens above 0, got 'many'",
        ),
    ],
)
def test_what_is_no_budget_file_is_refused_with_its_name(tmp_path, text, match):
    path = tmp_path / "budget.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"`{re.escape(str(path))}`: .*{match}|`{re.escape(str(path))}`: {match}"):
        Budget.load(path)
