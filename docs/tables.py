"""Fill the tables of README from the bench results, and draw their plots: ``python docs/tables.py``.

A table stands between two comments, `<!-- decode -->` and `<!-- end of decode -->`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from headscope.cli import result

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    """Put each result's table between its two comments, and its plot beside it."""
    os.chdir(ROOT)  # links are relative to the README
    readme = Path("README.md")
    text = readme.read_text(encoding="utf-8")
    for bench in re.findall(r"<!-- end of (\S+) -->", text):
        file = Path("scores") / "bench" / f"{bench}-cuda.json"
        if file.is_file():
            start, end = (text.index(f"<!-- {mark} -->") for mark in (bench, f"end of {bench}"))
            table = result.show(result.read(file), file, file.with_suffix(".png"))
            text = f"{text[:start]}<!-- {bench} -->\n\n{table}\n\n{text[end:]}"
    readme.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
