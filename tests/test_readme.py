"""What the README says is what the result files hold, and its commands name verbs that exist."""

import json
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest

from headscope.cli import result
from headscope.cli.summary import of_ablation, of_scores, of_sweep, share
from headscope.cli.verbs import VERBS
from headscope.evaluate.ablation import Condition, Outcome
from headscope.evaluate.words import WordsRight
from headscope.report.decode_cells import Cells
from headscope.scores import HeadScores

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BENCH = ROOT / "scores" / "bench"


def rows(table: str) -> list[list[str]]:
    """The cells of a table of two or more spaces between columns, as the command line prints it."""
    return [re.split(r"\s{2,}", line.strip()) for line in table.splitlines()]


def markdown(header: str) -> list[list[str]]:
    """The rows of the README's table whose first column is headed so."""
    lines = README[README.index(f"| {header} |") :].split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def outcomes() -> list[Outcome]:
    found = json.loads((BENCH / "ablation-reader-22m.json").read_text(encoding="utf-8"))["outcomes"]
    return [
        Outcome(
            Condition(each["kind"], tuple(map(tuple, each["heads"])), each["draw"]),
            tuple(WordsRight(*page) for page in each["pages"]),
        )
        for each in found
    ]


def test_the_ablation_is_that_of_the_result_file() -> None:
    printed = [" | ".join(row) for row in rows(of_ablation(outcomes()))[1:]]
    shown = [" | ".join(cell for cell in row if cell) for row in markdown("heads silenced")]
    assert shown == printed


def test_the_ablation_holds_what_it_is_there_to_show() -> None:
    """Without its best tenth of heads the model cannot read; without another tenth it mostly can."""
    groups: dict[tuple[str, int], list[float]] = {}
    for outcome in outcomes():
        groups.setdefault((outcome.condition.kind, len(outcome.condition.heads)), []).append(outcome.accuracy)
    (full,) = groups["full", 0]
    assert full > 0.9 and max(groups["best", 14]) < 0.05
    for kind in ("random", "layer-matched"):
        assert sum(groups[kind, 14]) / len(groups[kind, 14]) >= 0.85 * full


def sweep_points() -> list[dict[str, Any]]:
    return json.loads((BENCH / "sweep-reader-22m.json").read_text(encoding="utf-8"))["points"]


def test_the_sweep_is_that_of_the_result_file() -> None:
    printed = [" | ".join(row) for row in rows(of_sweep(sweep_points()))[1:] if row[1] == "observation_window"]
    assert [" | ".join(cell for cell in row if cell) for row in markdown("rule")] == printed


def test_the_sweep_shows_what_head_scores_are_worth() -> None:
    """At 64 of 110 tokens a head: at least 75 % of words right, and 45 points above uniform and shuffled scores."""
    found: dict[str, list[float]] = {}
    for point in sweep_points():
        if point["per_head"] in (64, 110) and point["select"] == "observation_window":
            found.setdefault(point["rule"], []).append(100 * point["accuracy"])
    (scored,) = found["sparsemm"]
    assert scored >= 75 and len(found["random"]) == 5
    assert scored - found["uniform"][0] >= 45 and scored - sum(found["random"]) / 5 >= 45


def test_the_kernels_are_those_of_the_result_file() -> None:
    cells = json.loads((BENCH / "kernels-cuda.json").read_text(encoding="utf-8"))["cells"]
    for cell, row in zip(cells, markdown("batch, KV heads, group, head dim, mean length"), strict=True):
        assert row[0] == ", ".join(map(str, cell["cell"]))
        figures = (cell["equal"]["tb_per_s"], cell["of_sdpa"], cell["ragged"]["tb_per_s"], cell["of_equal"])
        assert row[1:] == [f"{figure:.2f}" for figure in figures]


@pytest.mark.parametrize("bench", sorted({"decode", "memory", *re.findall(r"<!-- end of (\S+) -->", README)}))
def test_a_benchs_table_and_its_result_file_come_together(bench: str) -> None:
    shown = README.split(f"<!-- {bench} -->")[1].split(f"<!-- end of {bench} -->")[0].strip()
    file = BENCH / f"{bench}-cuda.json"
    assert bool(shown) == file.is_file() == file.with_suffix(".png").is_file()
    if shown:
        table = pkgutil.resolve_name(result.BENCHES[bench])
        assert shown == table(result.read(file), f"scores/bench/{bench}-cuda.json"), "run docs/tables.py"


def test_a_small_budget_decodes_as_fast_as_it_must() -> None:
    """Batch 1, budget 256: flat to 32K, near the time of the weights, and 1.87x over the graphed full cache there."""
    cells = Cells.of(result.read(BENCH / "decode-cuda.json"))
    for shape, weights_ms in cells.weights_ms.items():
        found = [cells.budget((shape, 1, context), 256) for context in (2048, 8192, 32768)]
        times = [row["ms_per_token"] for row in found if row]
        assert len(times) == 3 and max(times) <= 1.05 * min(times) and max(times) <= 1.25 * weights_ms
    vicuna = ("vicuna-7b", 1, 32768)
    full, kept = cells.full(vicuna), cells.budget(vicuna, 256)
    assert full and kept and full["ms_per_token"] >= 1.87 * kept["ms_per_token"]


def test_a_small_budget_saves_the_memory_that_it_must() -> None:
    """Vicuna-7B at 32K against the leanest full cache: peak 47 %, end 52 % lower; selection under 5 % and 256 MiB."""
    cells = result.read(BENCH / "memory-cuda.json")["cells"]
    here = [row for row in cells if (row["shape"], row["context"]) == ("vicuna-7b", 32768)]
    full = [row for row in here if row["run"] in ("transformers", "full")]
    (kept,) = (row for row in here if row["run"] == "budget")
    assert len(full) == 2
    assert kept["peak_mib"] <= 0.53 * min(row["peak_mib"] for row in full)
    assert kept["steady_mib"] <= 0.48 * min(row["steady_mib"] for row in full)
    plain, selecting = sorted((row for row in here if row["run"] == "prefill"), key=lambda row: "budget" in row)
    assert selecting["prefill_s"] <= 1.05 * plain["prefill_s"]
    assert selecting["prefill_mib"] <= plain["prefill_mib"] + 256


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_what_probing_costs_is_that_of_the_result_files(device: str) -> None:
    found = json.loads((BENCH / f"probe-{device}.json").read_text(encoding="utf-8"))
    told = next(row for row in markdown("machine") if found["hardware"].get("gpu", "CPU") in row[0])
    assert told[1] == share(found["time"]["added"]) and found["time"]["added"] <= 0.6
    assert found["time"]["tokens_identical"] and found["time"]["logits_identical"]
    if "memory" in found:
        assert told[2] == f"{found['memory']['added_gib']:.2f} GiB" and found["memory"]["added_gib"] <= 1
        assert found["memory"]["tokens_identical"] and found["memory"]["logits_identical"]


def test_the_printed_summary_is_that_of_the_shipped_scores() -> None:
    printed = of_scores(HeadScores.load(ROOT / "scores" / "reader-22m.json"))
    assert "\n".join(f"    {line}" if line else "" for line in printed.splitlines()) in README


def test_every_verb_and_no_other_is_listed() -> None:
    assert {row[0].strip("`") for row in markdown("verb")} == {f"headscope {verb}" for verb in VERBS}


def test_every_file_that_is_linked_exists() -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert link.startswith("https://") or (ROOT / link).exists(), link
