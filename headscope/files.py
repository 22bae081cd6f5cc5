"""A result file: written whole or not at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write_atomically(path: str | Path, content: str | bytes) -> Path:
    """Write text (UTF-8) or bytes to a temporary file beside `path`, then put it in place; make missing folders.

    Give the path written. Raises OSError, one line that names the file, when it cannot be written (full disk,
    permission, not a plain file); what stood there before then still stands, and nothing half-written remains.
    """
    target = Path(os.path.realpath(path))
    data = content.encode() if isinstance(content, str) else content
    try:
        if target.exists() and not target.is_file():
            raise OSError("it exists and is not a plain file")
        target.parent.mkdir(parents=True, exist_ok=True)
        _replace(target, data)
    except OSError as error:
        raise OSError(
            f"`{path}` could not be written: {error.strerror or error}; what stood there before is unchanged"
        ) from error
    return Path(path)


def _replace(target: Path, data: bytes) -> None:
    """Write beside the target, force to disk, rename; on any exception, Ctrl-C included, remove the temporary file."""
    temporary = target.with_name(f".{target.name[:100]}.{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
