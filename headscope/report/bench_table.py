"""Tables of bench results in Markdown, with a caption of where they come from: what README shows."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

from headscope.report.decode_cells import Cell, Cells, Row

NONE = "-"
WIDTH = 140
BUDGET = 256  # tokens a head: the budget that the table of latencies shows
CONTEXT = 32768  # the context at which it shows batches above 1

DECODE = (
    "shape",
    "batch",
    "context",
    "transformers, ms",
    "full cache, ms (attention)",
    "budget {budget}, ms",
    "faster than full",
    "bytes allow",
    "of copy bandwidth",
    "weights' time",
)
MEMORY = (
    "shape",
    "context",
    "run",
    "peak, MiB",
    "saved",
    "at the end, MiB",
    "saved",
    "ms a token",
    "{new} tokens, s",
    "prefill alone, s",
    "its peak, MiB",
)


def of_decode(document: Row, file: str | Path, budget: int = BUDGET) -> str:
    """Lay out a result of `headscope bench decode`: batch 1 at every context, larger batches at one if it is there.

    file: where the result lies, for the links. What was not measured is a dash, what failed says so.
    """
    cells = Cells.of(document)
    everywhere = all(context != CONTEXT for _, _, context in cells.cells)
    shown = [cell for cell in cells.cells if cell[1] == 1 or cell[2] == CONTEXT or everywhere]
    table = markdown([name.format(budget=budget) for name in DECODE], [_decoded(cells, cell, budget) for cell in shown])
    note = (
        f"{_source('decode', document, file)}. A copy moves {cells.copy:.2f} TB/s there. The full cache runs in a "
        "CUDA graph of the same step, with the fastest attention there is (in brackets). Bytes allow: how much faster "
        "the bytes that a step reads would make it. Weights' time: a step's time over that of reading the weights once "
        "at the speed of the copy."
    )
    return f"{table}\n\n{fill(note)}"


def _decoded(cells: Cells, cell: Cell, budget: int) -> list[str]:
    stock, full, kept = cells.stock(cell), cells.full(cell), cells.budget(cell, budget)
    shape, batch, context = cell
    both = full is not None and kept is not None
    return [
        shape,
        str(batch),
        f"{context / 1024:g}K",
        _ms(stock),
        f"{_ms(full)} ({full['attention']})" if full else cells.failure(cell) or NONE,
        _ms(kept),
        _times(full, kept, "ms_per_token") if both else NONE,
        _times(full, kept, "bytes") if both else NONE,
        f"{100 * kept['of_copy']:.1f} %" if kept else NONE,
        f"{kept['ms_per_token'] / cells.weights_ms[shape]:.2f}" if kept else NONE,
    ]


def _ms(row: Row | None) -> str:
    return f"{row['ms_per_token']:.2f}" if row else NONE


def _times(full: Row | None, kept: Row | None, key: str) -> str:
    return f"{full[key] / kept[key]:.2f}x" if full and kept else NONE


def of_memory(document: Row, file: str | Path) -> str:
    """Lay out a result of `headscope bench memory`: each run's memory and times, what a budget saves and costs."""
    rows: list[list[str]] = []
    for shape, context in dict.fromkeys((row["shape"], row["context"]) for row in document["cells"]):
        here = [row for row in document["cells"] if (row["shape"], row["context"]) == (shape, context)]
        rows += [[shape, f"{context / 1024:g}K", *_ran(row, here)] for row in here if row["run"] != "prefill"]
    new = document["cells"][0]["new_tokens"]
    note = (
        f"{_source('memory', document, file)}. Whole `generate` calls of batch 1, weights included. Saved: of what "
        "transformers takes. Prefill alone: the prompt without an answer, its peak above the weights; in brackets what "
        "the selection adds, and what it adds to the peak."
    )
    return f"{markdown([name.format(new=new) for name in MEMORY], rows)}\n\n{fill(note)}"


def _ran(row: Row, here: Sequence[Row]) -> list[str]:
    name = {"transformers": "transformers", "full": "full cache, graphed"}.get(row["run"]) or f"budget {row['budget']}"
    if "failed" in row:
        return [name, row["failed"], *[NONE] * 7]
    stock = next((other for other in here if other["run"] == "transformers" and "peak_mib" in other), None)
    compared = stock if stock is not None and row is not stock else None
    return [
        name,
        str(row["peak_mib"]),
        _saved(row, compared, "peak_mib"),
        str(row["steady_mib"]),
        _saved(row, compared, "steady_mib"),
        f"{row['ms_per_token']:.2f}",
        f"{row['decode_s']:.2f}",
        *_prefill(row, here),
    ]


def _saved(row: Row, stock: Row | None, key: str) -> str:
    return f"{100 * (1 - row[key] / stock[key]):.1f} %" if stock else ""


def _prefill(row: Row, here: Sequence[Row]) -> tuple[str, str]:
    """Give the prefill's time and peak; for a budget also what they are above those of plain prefill."""
    found = {each.get("budget"): each for each in here if each["run"] == "prefill" and "prefill_s" in each}
    own, plain = found.get(row.get("budget")), found.get(None)
    if row["run"] == "full" or own is None:
        return "", ""
    time, peak = f"{own['prefill_s']:.3f}", str(own["prefill_mib"])
    if own is not plain and plain is not None:
        time += f" ({100 * (own['prefill_s'] / plain['prefill_s'] - 1):+.1f} %)"
        peak += f" ({own['prefill_mib'] - plain['prefill_mib']:+d})"
    return time, peak


def _source(bench: str, document: Row, file: str | Path) -> str:
    """Name the command, the hardware, the software and the commit, and link the file and its plot."""
    software = document["software"]
    versions = f"torch {software['torch']}, transformers {software['transformers']}"
    links = f"all cells in [{file}]({file}) and [their plot]({Path(file).with_suffix('.png').as_posix()})"
    return (
        f"`headscope bench {bench}`, {document['hardware']['gpu']}, bfloat16, random weights, {versions}, "
        f"commit {document['commit']}; {links}"
    )


def markdown(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay out text as a table of Markdown."""
    return "\n".join([_line(heading), f"|{'---|' * len(heading)}", *map(_line, rows)])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def fill(text: str) -> str:
    """Break text into lines."""
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)
