"""The bundled pages: `python data/pages/draw.py` draws all of them again, with their words, beside this script.

A page depends on its seed, its kind and its size alone. No page is chosen or dropped by what any model or OCR engine
reads on it. Fonts are those that matplotlib bundles; the text is laid out by Pillow's basic engine.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import matplotlib
from content import Writer
from PIL import Image, ImageChops, ImageDraw, ImageFont

HERE = Path(__file__).parent
CELL = 28  # pixels a side: one token of reader-22m
KINDS = ("plain", "receipt", "form", "coloured", "small", "large")
PRINT_PX = {  # lowest and highest font size of a kind
    "plain": (18, 26),
    "receipt": (17, 24),
    "form": (17, 24),
    "coloured": (17, 28),
    "small": (15, 17),
    "large": (30, 44),
}
FACES = ("Sans", "Sans-Bold", "Sans-Oblique", "SansMono-Bold", "Serif", "Serif-Bold")
SMALL_PRINT = tuple(f"DejaVu{face}" for face in FACES)
FONTS = (*SMALL_PRINT, "DejaVuSerif-Italic", "STIXGeneral", "STIXGeneralBol")  # the last three print finer
CELLS_PER_WORD = 4  # reader-22m was trained on answers of at most 24 tokens + one a cell, and a word takes four or five
EVALUATION_GRIDS = ("8x12", "12x8", "6x16")  # rows x columns, always 96 cells: a prompt of 110 tokens
PROBE_GRIDS = ("6x10", "8x8", "6x18", "8x12", "12x8", "8x13", "10x10", "10x12", "14x9", "12x12", "11x14", "16x16")
Font = ImageFont.FreeTypeFont
Box = tuple[int, int, int, int]  # x0, y0, x1, y1 in pixels


@dataclass(frozen=True)
class Split:
    """A set of bundled pages: its name, how many, the seed of the first one, and its grids, taken in turn."""

    name: str
    pages: int
    first_seed: int
    grids: tuple[str, ...]

    def page(self, number: int) -> tuple[int, str, str]:
        """Give the seed, kind and grid of a page; the shift by one a round lets every kind meet every grid."""
        grid = self.grids[(number + number // len(KINDS)) % len(self.grids)]
        return self.first_seed + number, KINDS[number % len(KINDS)], grid


@dataclass(frozen=True)
class Drawn:
    """A drawn page: the picture, its lines, and its words with their boxes in reading order."""

    image: Image.Image
    lines: list[str]
    words: list[tuple[str, Box]]


SPLITS = (Split("probe", 40, 10_000, PROBE_GRIDS), Split("evaluation", 100, 20_000, EVALUATION_GRIDS))


def font(name: str, px: int) -> Font:
    """Load a font of matplotlib's bundle at a size in pixels."""
    path = Path(matplotlib.get_data_path(), "fonts", "ttf", f"{name}.ttf")
    return ImageFont.truetype(path, px, layout_engine=ImageFont.Layout.BASIC)


def draw_page(seed: int, kind: str, grid: str) -> Drawn:
    """Draw one page of a grid of cells, such as "8x12" (rows x columns)."""
    rng = random.Random(seed)
    rows, columns = (int(side) for side in grid.split("x"))
    glyphs = Image.new("L", (columns * CELL, rows * CELL), 0)
    fonts = SMALL_PRINT if kind == "small" else FONTS
    face = font(rng.choice(fonts), rng.randint(*PRINT_PX[kind]))
    lines, words = [], []
    for x, y, line in place(rng, kind, *glyphs.size, face):
        words += print_line(glyphs, (x, y), line, face)
        lines.append(line)
    return Drawn(ink(rng, kind, glyphs), lines, words)


def place(rng: random.Random, kind: str, width: int, height: int, face: Font) -> Iterator[tuple[int, int, str]]:
    """Give the left and top pixel of each line of a page, and the line."""
    words = width * height // CELL**2 // CELLS_PER_WORD
    left, top = rng.randint(4, width // 10), rng.randint(3, height // 10)
    step = round(face.size * rng.uniform(1.15, 1.7))
    rows = max(1, (height - 2 - top - round(1.25 * face.size)) // step + 1)
    for row, line in enumerate(write(rng, kind, rows, words, width - 4 - left, face)):
        yield left, top + row * step, line


def write(rng: random.Random, kind: str, rows: int, words: int, width: int, face: Font) -> list[str]:
    """Write at most `rows` lines of at most `words` words in all, each line no wider than `width` pixels."""
    writer = Writer(rng)
    if kind in ("receipt", "form"):
        *lines, last = [line for line in getattr(writer, kind)() if face.getlength(line) <= width]
        return [*up_to(words - len(last.split()), lines[: rows - 1]), last]
    lines = [prose(writer, width, face) for _ in range(max(min(rows, 2), round(rows * rng.uniform(0.6, 1.0))))]
    return up_to(words, lines)


def up_to(words: int, lines: list[str]) -> list[str]:
    """Give the first lines that hold at most `words` words together."""
    totals = accumulate(len(line.split()) for line in lines)
    return [line for line, total in zip(lines, totals, strict=True) if total <= words]


def prose(writer: Writer, width: float, face: Font) -> str:
    """Write one line of running text: words until the next would not fit, or fewer."""
    line, wanted = "", writer.random.choice((2, 3, 20, 20))
    while not line or len(line.split()) < wanted:
        longer = f"{line} {writer.token()}".strip()
        if face.getlength(longer) <= width:
            line = longer
        elif line:
            break
    return line


def print_line(glyphs: Image.Image, at: tuple[int, int], line: str, face: Font) -> list[tuple[str, Box]]:
    """Draw a line as a whole; give its words with their boxes, the ink that each adds to the words before it."""
    words, boxes, before = line.split(), [], Image.new("L", glyphs.size, 0)
    for count in range(1, len(words) + 1):
        after = Image.new("L", glyphs.size, 0)
        ImageDraw.Draw(after).text(at, " ".join(words[:count]), fill=255, font=face)
        boxes.append(ImageChops.difference(before, after).getbbox())
        before = after
    glyphs.paste(ImageChops.lighter(glyphs, before))
    return list(zip(words, boxes, strict=True))


def ink(rng: random.Random, kind: str, glyphs: Image.Image) -> Image.Image:
    """Print the glyphs [height, width] in dark ink on white paper, or in random colours on plain or graded paper."""
    if kind != "coloured":
        return ImageChops.invert(glyphs)
    paper, pen = colours(rng)
    sheet = Image.new("RGB", glyphs.size, paper)
    if rng.random() < 0.5:
        shade = Image.linear_gradient("L").resize(glyphs.size).point(lambda value: value // 8)
        change = rng.choice((ImageChops.add, ImageChops.subtract))
        sheet = change(sheet, Image.merge("RGB", (shade,) * 3))
    sheet.paste(pen, mask=glyphs)
    return sheet


def colours(rng: random.Random) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Give random paper and ink colours whose mean brightness differs by 100 of 255 at least."""
    while True:
        paper, pen = (tuple(rng.randrange(256) for _ in range(3)) for _ in range(2))
        if abs(sum(paper) - sum(pen)) >= 300:
            return paper, pen


def draw_split(split: Split, folder: Path) -> None:
    """Draw a set of pages: PNG files in `folder`/<name>/ and their words in `folder`/<name>.jsonl."""
    (folder / split.name).mkdir(parents=True, exist_ok=True)
    with (folder / f"{split.name}.jsonl").open("w", encoding="utf8", newline="\n") as records:
        for number in range(split.pages):
            name = f"{split.name}/{number:03d}.png"
            seed, kind, grid = split.page(number)
            drawn = draw_page(seed, kind, grid)
            drawn.image.save(folder / name, optimize=True)
            words = [{"text": text, "box": box} for text, box in drawn.words]
            record = {"image": name, "kind": kind, "seed": seed, "text": "\n".join(drawn.lines), "words": words}
            records.write(json.dumps(record, ensure_ascii=False) + "\n")


def main() -> None:
    """Draw every set of pages."""
    parser = argparse.ArgumentParser(description="Draw the bundled pages and their word boxes.")
    parser.add_argument("--out", type=Path, default=HERE, help="folder to write to (default: beside this script)")
    folder = parser.parse_args().out
    for split in SPLITS:
        draw_split(split, folder)
        size = sum(path.stat().st_size for path in (folder / split.name).glob("*.png"))
        print(f"{split.name}: {split.pages} pages, {size} bytes")


if __name__ == "__main__":
    main()
