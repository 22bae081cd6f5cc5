"""The files that ship with headscope: conf/, data/ and scores/, found in a checkout or inside an installed wheel."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def find(*parts: str) -> Path:
    """Give the path of a shipped folder or file, such as ``find("data", "reader")``.

    The checkout's own files come first: an editable install also copies them into site-packages, where they go stale.

    Raises FileNotFoundError when neither place has it.
    """
    for root in (PACKAGE.parent, PACKAGE / "shipped"):
        if (root / "conf" / "probe.yaml").is_file() and (path := root.joinpath(*parts)).exists():
            return path
    name = "/".join(parts)
    raise FileNotFoundError(f"`{name}` ships with headscope but is missing from {PACKAGE}; install headscope again")
