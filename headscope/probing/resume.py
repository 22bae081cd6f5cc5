"""Progress on disk: the pages a probe has finished, so that a rerun of the same command goes on from there."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from headscope.files import write_atomically
from headscope.page import Page
from headscope.scores import PageRecord


@dataclass
class Progress:
    """Finished pages by what they hold, and the file that keeps them: a line for the settings, then a line a page."""

    path: Path | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    records: dict[str, PageRecord] = field(default_factory=dict)
    begun: bool = False  # whether this run has written the file

    @classmethod
    def open(cls, path: str | Path | None, settings: dict[str, Any]) -> Progress:
        """Take up the progress of an earlier run with the same settings, or begin anew. None keeps nothing on disk.

        Nothing is written until a page is done.
        """
        return cls() if path is None else cls(Path(path), settings, _read(Path(path), settings))

    def find(self, key: str) -> PageRecord | None:
        """Give the record of a page that is done already."""
        return self.records.get(key)

    def keep(self, key: str, record: PageRecord) -> PageRecord:
        """Keep a finished page, on disk at once. Raises OSError that names the file, such as for a full disk."""
        self.records[key] = record
        if self.path is not None and self.begun:
            _append(self.path, _line(key, record))
        elif self.path is not None:
            # Written anew the first time: a line cut off by a crash must not run into the next one.
            lines = [_line(*kept) for kept in self.records.items()]
            write_atomically(self.path, json.dumps(self.settings) + "\n" + "".join(lines))
            self.begun = True
        return record


def page_key(page: Page, content: str) -> str:
    """Give a key that changes with anything of a page that its values come from: name, pixels, given words and text."""
    given = [asdict(word) for word in page.words] if page.words is not None else None
    return sha256(json.dumps([page.name, content, given, page.text]).encode()).hexdigest()


def _append(path: Path, line: str) -> None:
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(line)
    except OSError as error:
        raise OSError(f"`{path}` could not be written: {error.strerror}; the pages before are kept") from error


def _line(key: str, record: PageRecord) -> str:
    return json.dumps({"key": key, "record": record.to_json()}) + "\n"


def _read(path: Path, settings: dict[str, Any]) -> dict[str, PageRecord]:
    """Read the records of a file that was made with the same settings; a broken last line is dropped."""
    if not path.is_file():
        return {}
    first, *lines = path.read_text(encoding="utf-8").splitlines() or [""]
    if first != json.dumps(settings):
        return {}
    kept = {}
    for line in lines:
        try:
            entry = json.loads(line)
            kept[entry["key"]] = PageRecord.from_json(entry["record"])
        except (ValueError, KeyError, TypeError):
            break
    return kept
