"""A folder of pages: picture files found by path, folder or glob."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from headscope.page import Page
from headscope.page.listing import take, unique

SUFFIXES = (
    *(".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".gif", ".tif", ".tiff", ".bmp", ".dib"),
    *(".webp", ".avif", ".jp2", ".ppm", ".pgm", ".pbm", ".pnm"),
)
SNIFFED = ("PNG", "JPEG", "GIF", "TIFF", "BMP", "WEBP", "JPEG2000", "PPM")  # a JPEG may turn out an MPO


def folder(path: str | Path, limit: int | None = None) -> list[Page]:
    """List the pictures in a folder (with its subfolders), of a glob such as ``scans/*.png``, or the one file named.

    A picture is a file with a picture's suffix or a picture's content; hidden files and folders are passed over, and
    `~` is expanded. Order: by path. Whether a picture is whole shows when it is decoded: a bad one is not dropped here.

    Raises FileNotFoundError when nothing is there, ValueError when nothing there is a picture.
    """
    if not str(path):
        raise ValueError("`path` must name a folder, a glob or a picture file; got ''")
    start = Path(path).expanduser()
    if start.is_file():
        found, root = [start], start.parent
    elif start.is_dir():
        found, root = sorted(_pictures(start)), start
    elif glob.has_magic(str(start)):
        found, root = _matches(start), _fixed_part(start)
    else:
        raise FileNotFoundError(f"no pages in `{path}`: no such file or folder")
    if not found:
        raise ValueError(f"no pages in `{path}`: nothing there is a picture (PNG, JPEG, TIFF, WebP, GIF, BMP, ...)")
    return unique(Page(file.relative_to(root).as_posix(), file) for file in take(found, limit))


def _matches(pattern: Path) -> list[Path]:
    matches = [Path(match) for match in glob.glob(str(pattern), recursive=True)]
    if not matches:
        raise FileNotFoundError(f"no pages in `{pattern}`: nothing matches")
    inside = (file for match in matches for file in (_pictures(match) if match.is_dir() else [match]))
    return sorted({file for file in inside if _is_picture(file)})


def _fixed_part(pattern: Path) -> Path:
    """Give the folder that all matches share: the part of the pattern before its first wildcard."""
    fixed = pattern
    while glob.has_magic(str(fixed)):
        fixed = fixed.parent
    return fixed


def _pictures(root: Path) -> Iterator[Path]:
    """Walk a folder, links followed, each real folder once."""
    seen = set()
    for here, folders, files in os.walk(root, followlinks=True, onerror=_refuse):
        real = os.path.realpath(here)
        folders[:] = [] if real in seen else [name for name in folders if not name.startswith(".")]
        if real not in seen:
            yield from (file for name in files if _is_picture(file := Path(here, name)))
        seen.add(real)


def _refuse(error: OSError) -> None:
    raise error


def _is_picture(file: Path) -> bool:
    if file.name.startswith("."):
        return False
    if file.name.lower().endswith(SUFFIXES):
        return True
    try:
        with Image.open(file, formats=SNIFFED):
            return True
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError, SyntaxError, ValueError):
        return False
