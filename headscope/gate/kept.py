"""What is kept: records of a long run on disk, a line each, so that the same command goes on where it stopped."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from headscope.files import write_atomically


@dataclass
class Kept:
    """Records by key, of one kind of run. path: the file, or None to keep nothing on disk. of: what marks its lines.

    Several runs may share a file: each finds the lines with its own mark and leaves the others.
    """

    path: Path | None = None
    of: str = ""
    records: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def open(cls, path: str | Path | None, settings: dict[str, Any]) -> Kept:
        """Take up the records of an earlier run with the same settings, or begin anew."""
        of = sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
        if path is None:
            return cls(None, of)
        entries = [entry for line in _lines(Path(path)) if (entry := _entry(line))]
        return cls(Path(path), of, {entry["key"]: entry["record"] for entry in entries if entry["of"] == of})

    def keep(self, key: str, record: Any) -> Any:
        """Keep one record, on disk at once. Raises OSError that names the file, such as for a full disk."""
        self.records[key] = record
        if self.path is None:
            return record
        line = json.dumps({"of": self.of, "key": key, "record": record}) + "\n"
        whole = [f"{old}\n" for old in _lines(self.path) if _entry(old)]  # a line cut off by a crash is dropped
        write_atomically(self.path, "".join([*whole, line]))
        return record


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []


def _entry(line: str) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and entry.keys() == {"of", "key", "record"} else None
