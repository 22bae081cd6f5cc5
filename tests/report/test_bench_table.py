"""Tables say what result files hold: what was measured, what failed, what was not tried."""

from __future__ import annotations

import re

from headscope.report.bench_table import of_decode, of_memory
from headscope.report.decode_cells import Cells
from tests.report.documents import DECODE, MEMORY


def test_a_latency_is_beside_the_fastest_full_cache_and_the_bounds() -> None:
    table, note = of_decode(DECODE, "scores/x.json").split("\n\n")
    assert table.splitlines() == [
        "| shape | batch | context | transformers, ms | full cache, ms (attention) | budget 256, ms | faster than full "
        "| bytes allow | of copy bandwidth | weights' time |",
        "|---|---|---|---|---|---|---|---|---|---|",
        "| vicuna-7b | 1 | 2K | 60.00 | 4.00 (sdpa) | 4.20 | 0.95x | 1.04x | 74.4 % | 1.40 |",
        "| vicuna-7b | 1 | 32K | - | 7.50 (sdpa) | 3.75 | 2.00x | 2.40x | 83.3 % | 1.25 |",
        "| vicuna-7b | 1 | 128K | - | does not fit in the memory | 3.75 | - | - | 83.3 % | 1.25 |",
        "| vicuna-7b | 8 | 32K | - | does not fit in the memory | 5.00 | - | - | 70.0 % | 1.67 |",
        "| other | 1 | 32K | - | 4.00 (sdpa) | - | - | - | - | - |",
    ]
    said = " ".join(note.split())
    assert said.startswith("`headscope bench decode`, NVIDIA H200, bfloat16, random weights, torch 2.11.0, ")
    assert "commit abc123; all cells in [scores/x.json](scores/x.json) and [their plot](scores/x.png)." in said
    assert "A copy moves 4.00 TB/s there." in said


def test_another_budget_can_be_shown() -> None:
    (row,) = re.findall(r"vicuna-7b \| 1 \| 32K .*", of_decode(DECODE, "x.json", budget=64))
    assert row == "vicuna-7b | 1 | 32K | - | 7.50 (sdpa) | 3.70 | 2.03x | 2.46x | 82.4 % | 1.23 |"


def test_a_try_at_another_context_shows_every_batch() -> None:
    tried = DECODE | {"cells": [row for row in DECODE["cells"] if row["context"] == 2048]}
    assert "| vicuna-7b | 8 | 2K | - | 6.00 (sdpa) | 5.00 | 1.20x |" in of_decode(tried, "x.json")


def test_memory_is_compared_with_transformers_and_prefill_with_plain_prefill() -> None:
    table, note = of_memory(MEMORY, "x.json").split("\n\n")
    assert table.splitlines()[2:] == [
        "| vicuna-7b | 2K | transformers | 14000 |  | 13500 |  | 20.00 | 2.00 | 0.060 | 1200 |",
        "| vicuna-7b | 2K | full cache, graphed | 14280 | -2.0 % | 13600 | -0.7 % | 5.00 | 0.50 |  |  |",
        "| vicuna-7b | 2K | budget 256 | 13000 | 7.1 % | 12960 | 4.0 % | 4.00 | 0.40 | 0.075 (+25.0 %) | 1000 (-200) |",
        "| vicuna-7b | 32K | transformers | 32000 |  | 30000 |  | 22.00 | 2.20 | 1.400 | 19000 |",
        "| vicuna-7b | 32K | full cache, graphed | does not fit in the memory | - | - | - | - | - | - | - |",
        "| vicuna-7b | 32K | budget 256 | 16000 | 50.0 % | 12960 | 56.8 % | 4.00 | 0.40 | 1.470 (+5.0 %) | 3000 (-16000) |",  # noqa: E501
        "| vicuna-7b | 128K | transformers | does not fit in the memory | - | - | - | - | - | - | - |",
        "| vicuna-7b | 128K | budget 256 | 25000 |  | 12960 |  | 4.00 | 0.40 | 20.000 | 12000 |",
    ]
    assert "`headscope bench memory`" in note and max(map(len, note.splitlines())) <= 140


def test_a_full_cache_that_some_attention_ran_has_not_failed() -> None:
    cells = Cells.of(DECODE)
    assert cells.failure(("vicuna-7b", 1, 32768)) is None
    assert cells.failure(("vicuna-7b", 1, 131072)) == "does not fit in the memory"
    assert cells.loses(("vicuna-7b", 1, 2048), 256) and not cells.loses(("vicuna-7b", 1, 32768), 256)
    assert not cells.loses(("vicuna-7b", 1, 131072), 256) and cells.budgets == [64, 256]
