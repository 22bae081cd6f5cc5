"""Exports, read back by small readers written from what the other projects document; headscope's own are not used."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headscope.budget import Budget
from headscope.budget.formats import EXPORTS, as_budget, export

EACH = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def make(kept: Any, window: int = 8, prompt: int | None = 40, heads: int | None = None) -> Budget:
    return Budget(torch.tensor(kept), window=window, prompt=prompt, model={"heads": heads} if heads else {})


LENGTHS = st.integers(1, 300)
ANY_LENGTH = st.none() | LENGTHS


@st.composite
def budgets(draw: st.DrawFn, prompts: st.SearchStrategy[int | None] = ANY_LENGTH) -> Budget:
    layers, kv, prompt = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(prompts)
    window = draw(st.integers(1, 40))
    least, most = min(window, prompt or window), prompt or 2000
    kept = draw(st.lists(st.integers(least, most), min_size=layers * kv, max_size=layers * kv))
    return make(np.reshape(kept, (layers, kv)).tolist(), window, prompt, kv * draw(st.integers(1, 3)))


def duoattention(folder: Path) -> tuple[np.ndarray, int, int]:
    """Read as DuoAttention's README loads a pattern: a table with tabs, clipped to 0..1, and two sizes."""
    table = np.loadtxt(folder / "full_attention_heads.tsv", dtype=float, delimiter="\t", ndmin=2)
    config = json.loads((folder / "config.json").read_text())
    return table.clip(0, 1), config["sink_size"], config["recent_size"]


def retrieval_heads(table: np.ndarray, sparsity: float) -> np.ndarray:
    """Choose full-attention heads as DuoAttention does: those at or above the quantile."""
    return table >= np.quantile(table, sparsity)


def lukv(path: Path, ratio: float, prompt: int) -> np.ndarray:
    """Read as kvpress 0.5.5 documents for LU-KV: the row of the ratio has the part that each KV head loses.

    Counts are rounded down, and each layer's rest goes to the largest fractions.
    """
    curve = np.load(path, allow_pickle=False)
    ideal = (1 - curve[round(ratio * 100) - 1]).clip(0, 1) * prompt
    kept = np.floor(ideal).astype(int)
    for layer, row in enumerate(kept):
        rest = round(ideal[layer].sum()) - row.sum()
        row[np.argsort(row - ideal[layer], kind="stable")[:rest]] += 1
    return kept.clip(1, prompt)


def qrhead(path: Path, k: int) -> list[tuple[int, int]]:
    """Read the first k of QRHead's pairs, each named layer-head."""
    names = [name for name, score in json.loads(path.read_text()) if isinstance(score, float)]
    return [(int(layer), int(head)) for layer, head in (name.split("-") for name in names[:k])]


def test_a_duoattention_folder_looks_like_this(tmp_path: Path) -> None:
    export(make([[8, 40], [16, 24]]), tmp_path / "duo", "duoattention")
    assert (tmp_path / "duo" / "full_attention_heads.tsv").read_text() == "0.0\t1.0\n0.25\t0.5\n"
    assert json.loads((tmp_path / "duo" / "config.json").read_text()) == {"sink_size": 0, "recent_size": 8}


@EACH
@given(budgets(LENGTHS))
def test_duoattention_tells_every_count_where_the_prompt_is_known(tmp_path: Path, budget: Budget) -> None:
    export(budget, tmp_path, "duoattention")
    table, sink, recent = duoattention(tmp_path)
    window = min(recent, budget.prompt)
    assert sink == 0
    np.testing.assert_array_equal(np.rint(window + table * (budget.prompt - window)), budget.kept)


@EACH
@given(budgets())
def test_duoattention_gives_full_attention_to_the_heads_that_keep_most(tmp_path: Path, budget: Budget) -> None:
    export(budget, tmp_path, "duoattention")
    kept, full = budget.kept.numpy(), retrieval_heads(duoattention(tmp_path)[0], 0.5)
    assert full.any()
    assert full.all() or kept[full].min() >= kept[~full].max()


def test_duoattention_of_any_prompt_is_measured_on_the_largest_head(tmp_path: Path) -> None:
    export(make([[8, 108], [33, 58]], prompt=None), tmp_path, "duoattention")
    assert duoattention(tmp_path)[0].tolist() == [[0, 1], [0.25, 0.5]]


def test_duoattention_of_windows_alone_streams_every_head(tmp_path: Path) -> None:
    export(make([[8, 8]], prompt=None), tmp_path, "duoattention")
    assert duoattention(tmp_path)[0].tolist() == [[0, 0]]


@EACH
@given(budgets())
def test_every_lukv_row_prunes_its_percentage_and_keeps_the_order_of_heads(tmp_path: Path, budget: Budget) -> None:
    export(budget, tmp_path / "curve.npy", "lukv")
    curve = np.load(tmp_path / "curve.npy")
    assert curve.shape == (99, budget.layers, budget.kv_heads)
    assert ((curve > -1e-12) & (curve < 1 + 1e-12)).all()
    np.testing.assert_allclose(curve.mean((1, 2)), np.arange(1, 100) / 100, atol=1e-12)
    order = budget.kept.flatten().argsort().tolist()
    assert (np.diff((1 - curve).reshape(99, -1)[:, order], axis=1) > -1e-12).all()


@EACH
@given(st.data())
def test_the_lukv_row_of_the_budgets_own_total_is_the_budget(tmp_path: Path, data: st.DataObject) -> None:
    kept = data.draw(st.lists(st.integers(8, 100), min_size=4, max_size=4))
    kept[0] += -sum(kept) % 4  # a mean of whole tokens, so of whole per cents
    if kept[0] > 100 or sum(kept) in (400, 4 * 8):
        return
    budget = make(np.reshape(kept, (2, 2)).tolist(), prompt=100)
    export(budget, tmp_path / "curve.npy", "lukv")
    np.testing.assert_array_equal(lukv(tmp_path / "curve.npy", 1 - sum(kept) / 400, 100), budget.kept)


def test_lukv_takes_from_the_window_only_when_nothing_else_is_left(tmp_path: Path) -> None:
    export(make([[8, 40], [16, 24]]), tmp_path / "curve.npy", "lukv")
    assert lukv(tmp_path / "curve.npy", 0.70, 40).min() == 8
    assert lukv(tmp_path / "curve.npy", 0.90, 40).tolist() == [[4, 4], [4, 4]]


def test_lukv_of_any_prompt_shares_out_in_proportion_to_what_lies_beyond_the_window(tmp_path: Path) -> None:
    export(make([[18, 28, 38, 8]], prompt=None), tmp_path / "curve.npy", "lukv")
    np.testing.assert_allclose(1 - np.load(tmp_path / "curve.npy")[69], [[0.2, 0.4, 0.6, 0]], atol=1e-12)


def test_a_list_of_layers_looks_like_this(tmp_path: Path) -> None:
    export(make([[8, 40], [16, 25], [9, 16]]), tmp_path / "layers.json", "layers")
    assert (tmp_path / "layers.json").read_text() == "[24, 21, 12]\n"


@EACH
@given(budgets())
def test_layers_together_keep_what_the_budget_keeps(tmp_path: Path, budget: Budget) -> None:
    export(budget, tmp_path / "layers.json", "layers")
    counts = json.loads((tmp_path / "layers.json").read_text())
    assert all(isinstance(count, int) for count in counts)
    assert abs(sum(counts) - Fraction(budget.total, budget.kv_heads)) <= Fraction(1, 2)
    for count, row in zip(counts, budget.kept.tolist(), strict=True):
        assert abs(count - Fraction(sum(row), len(row))) < 1
        assert min(row) <= count <= max(row)


def test_a_list_of_heads_looks_like_this(tmp_path: Path) -> None:
    export(make([[8, 40], [24, 24]], heads=4), tmp_path / "heads.json", "qrhead")
    expected = [["0-2", 1.0], ["0-3", 1.0], ["1-0", 0.5], ["1-1", 0.5], ["1-2", 0.5], ["1-3", 0.5]]
    assert json.loads((tmp_path / "heads.json").read_text()) == [*expected, ["0-0", 0.0], ["0-1", 0.0]]


@EACH
@given(budgets(), st.integers(1, 48))
def test_the_first_heads_of_a_list_are_those_that_keep_most(tmp_path: Path, budget: Budget, k: int) -> None:
    export(budget, tmp_path / "heads.json", "qrhead")
    heads = budget.model["heads"]
    group, everyone = heads // budget.kv_heads, qrhead(tmp_path / "heads.json", 10**6)
    assert sorted(everyone) == [(layer, head) for layer in range(budget.layers) for head in range(heads)]
    kept = [int(budget.kept[layer, head // group]) for layer, head in everyone]
    assert kept == sorted(kept, reverse=True)
    assert qrhead(tmp_path / "heads.json", k) == everyone[:k]


@pytest.mark.parametrize("heads", [None, 3])
def test_a_list_of_heads_needs_the_number_of_query_heads(tmp_path: Path, heads: int | None) -> None:
    with pytest.raises(
        ValueError, match=f"`budget` must know its model's query heads, .* got {heads}; allocate it from"
    ):
        export(make([[8, 40]], heads=heads), tmp_path / "heads.json", "qrhead")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("to", EXPORTS)
def test_a_prompt_no_longer_than_the_window_is_whole_everywhere(tmp_path: Path, to: str) -> None:
    export(make([[5, 5]], prompt=5, heads=2), tmp_path / "out", to)
    if to == "duoattention":
        assert duoattention(tmp_path / "out")[0].tolist() == [[1, 1]]
    elif to == "lukv":
        np.testing.assert_allclose(np.load(tmp_path / "out")[:, 0], np.arange(1, 100)[:, None] / 100 * [1, 1])
    else:
        assert json.loads((tmp_path / "out").read_text()) == {"layers": [5], "qrhead": [["0-0", 1.0], ["0-1", 1.0]]}[to]


def test_a_budget_is_taken_as_a_budget_or_as_a_path(tmp_path: Path) -> None:
    budget = make([[8, 40]], heads=2)
    budget.save(tmp_path / "budget.json")
    assert as_budget(budget) is budget
    assert as_budget(str(tmp_path / "budget.json")).kept.equal(budget.kept)
    export(tmp_path / "budget.json", tmp_path / "layers.json", "layers")
    assert (tmp_path / "layers.json").read_text() == "[24]\n"
    with pytest.raises(ValueError, match="`budget` must be a Budget or the path of a budget file, got list"):
        as_budget([[8, 40]])  # type: ignore[arg-type]


def test_an_unknown_format_is_refused_with_the_near_one(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"`to` must be one of duoattention, .*, got 'LU-KV'; did you mean lukv\?"):
        export(make([[8]]), tmp_path / "x", "LU-KV")


DOCUMENT = (Path(__file__).parents[2] / "docs" / "decoders.md").read_text(encoding="utf-8")


def test_the_documented_reader_needs_no_headscope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make([[8, 40], [16, 24]]).save(tmp_path / "budget.json")
    monkeypatch.chdir(tmp_path)
    example = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)[-1]
    assert len([line for line in example.splitlines() if line]) <= 10
    assert "import json" in example and example.count("import") == 1
    found: dict[str, Any] = {}
    exec(example, found)
    assert (found["window"], found["tokens"](0, 1, 100), found["tokens"](1, 1, 20)) == (8, 40, 20)


def test_the_document_names_every_export_and_every_key_of_a_file(tmp_path: Path) -> None:
    make([[8]]).save(tmp_path / "budget.json")
    rows = re.findall(r"^\| `(\w+)` \|", DOCUMENT, re.MULTILINE)
    assert rows == [*EXPORTS, *json.loads((tmp_path / "budget.json").read_text())]
