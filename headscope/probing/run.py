"""The probe: pages in, head scores out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from headscope.families import detect, geometry
from headscope.families.loading import model_identity
from headscope.page import Page, Word
from headscope.page.image import PageError, content_hash, decode
from headscope.page.ocr import engine as engine_named
from headscope.page.source import as_pages
from headscope.probing.credit import CELLS, MATCHES, Credit, credit, word_cells
from headscope.probing.progress import bar
from headscope.probing.ranks import ALONE, Ranks
from headscope.probing.reading import Reader, Reading
from headscope.probing.resume import Progress, page_key
from headscope.probing.rows import watch_rows
from headscope.probing.tally import Sums, Tally
from headscope.scores import FailedPage, HeadScores, PageRecord, require_credit
from headscope.software import versions

Engine = Callable[[Page, Any], list[Word]]
QUESTION = "Read the text."


@dataclass(frozen=True)
class Settings:
    """How a page becomes values; what a score file records of it.

    answer: `generate` (the model reads) or `given` (teacher-forced on the page's own text). match, cells: see
    `probing.credit`. statistic: which of the kept statistics the score file's values are, `hit` or `mass`.
    """

    prompt: str = QUESTION
    answer: Literal["generate", "given"] = "generate"
    match: Literal["aligned", "paper"] = "aligned"
    statistic: Literal["hit", "mass"] = "hit"
    cells: Literal["fine", "both"] = "fine"
    max_new_tokens: int = 1024
    seed: int = 0

    def __post_init__(self) -> None:
        choices = {
            "answer": ("generate", "given"),
            "match": tuple(MATCHES),
            "statistic": ("hit", "mass"),
            "cells": CELLS,
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"`{name}` must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")
        if self.max_new_tokens < 1:
            raise ValueError(f"`max_new_tokens` must be at least 1, got {self.max_new_tokens}")


def probe(
    model: Any,
    processor: Any,
    pages: Any,
    *,
    ocr: Engine | str = "easyocr",
    limit: int | None = None,
    shard: str | None = None,
    ranks: Ranks = ALONE,
    name: str | None = None,
    state: str | Path | None = None,
    keep_pages: bool = False,
    progress: bool = False,
    **settings: Any,
) -> HeadScores:
    """Score every (layer, head) of a model: does it look at the words that the model is reading at that moment?

    The method of SparseMM (section 3.1): the model reads each page; the row that predicts a token of a word should have
    its arg max in that word's cells. Generation takes the model's normal path; one pass over prompt and answer then
    forms the rows.

    pages: a path, glob, JSONL file, "bundled", pictures, or a list of `Page`. ocr: an engine or its name. limit: only
    the first pages. shard: "i/n", every n-th page from the i-th on; merge all parts for the whole. ranks: the processes
    that share the pages; every one of them returns the whole. name: the model's id in the file. state: a file that
    keeps finished pages, so that an interrupted probe goes on. keep_pages: keep every page's values. settings: the
    fields of `Settings`.

    Raises ValueError for a model of no known family, no pages, no words on any page, and answers that match no word.
    """
    chosen = choose(as_pages(pages), limit, shard)
    how = Settings(**settings)
    read = engine_named(ocr) if isinstance(ocr, str) else ocr
    reader = Reader(model, processor, detect(model.config), how.prompt, how.max_new_tokens)
    described = describe(reader, read, how, name=name, shard=shard)
    done = Progress.open(ranks.own_file(state), described)
    records, failed = ranks.gather(*collect(reader, ranks.share(chosen), read, how, done, show=progress))
    return conclude(records, failed, described, keep_pages=keep_pages or shard is not None)


def choose(pages: Sequence[Page], limit: int | None, shard: str | None) -> list[Page]:
    """Give the first `limit` pages, of these every n-th from the i-th on for the shard "i/n" (i from 1)."""
    if limit is not None and limit < 1:
        raise ValueError(f"`limit` must be at least 1, got {limit}")
    first, step = parse_shard(shard) if shard else (1, 1)
    return list(pages[:limit][first - 1 :: step])


def parse_shard(shard: str) -> tuple[int, int]:
    """Read "i/n" as (i, n), with 1 <= i <= n."""
    index, _, count = shard.partition("/")
    if not (index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
        raise ValueError(f"`shard` must be i/n with 1 <= i <= n, such as 1/4, got {shard!r}")
    return int(index), int(count)


def describe(reader: Reader, ocr: Engine, how: Settings, *, name: str | None, shard: str | None) -> dict[str, dict]:
    """Give what a score file records of a run before its pages: model, probe and software."""
    identity = model_identity(reader.model)
    engine = {key: getattr(ocr, key, None) for key in ("name", "version", "options")}
    probed = {**asdict(how), "ocr": engine, "dtype": str(reader.model.dtype).removeprefix("torch.")}
    return {
        "model": {**identity, "id": name or identity["id"]},
        "probe": {**probed, "shard": shard} if shard else probed,
        "software": versions(),
    }


def collect(
    reader: Reader, pages: Iterable[Page], ocr: Engine, how: Settings, done: Progress, *, show: bool = False
) -> tuple[list[PageRecord], list[FailedPage]]:
    """Probe pages one by one, keeping each as soon as it is done. A bad page is named and counted, never fatal."""
    pages = list(pages)
    records: list[PageRecord] = []
    failed: list[FailedPage] = []
    with bar(len(pages), show) as tick:
        for page in pages:
            try:
                image = decode(page.source, name=page.name)
                key = page_key(page, content_hash(image))
                record = done.find(key) or done.keep(key, probe_page(reader, page, image, ocr(page, image), how))
                records.append(record)
            except PageError as error:
                failed.append(FailedPage(page.name, str(error).removeprefix(f"{page.name}: ")))
            except torch.OutOfMemoryError as error:
                failed.append(FailedPage(page.name, f"out of memory: {str(error).splitlines()[0]}"))
            tick(records, failed)
    return records, failed


def probe_page(reader: Reader, page: Page, image: Any, words: Sequence[Word], how: Settings) -> PageRecord:
    """Let the model read one decoded page and score all heads on it. A page without words is not read."""
    shape = geometry(reader.model.config)
    sums, cropped, tokens, credited = Sums.none(shape.layers, shape.heads), 0, 0, 0
    if words:
        reading = read_answer(reader, page, image, words, how)
        places = word_cells(words, reading.picture, how.cells)
        due = credit(reading.answer, words, places, how.match)
        sums = score(reader, reading, due)
        cropped, tokens, credited = sum(not len(place) for place in places), len(reading.ids), len(due.tokens)
    return PageRecord(
        name=page.name,
        hash=content_hash(image),
        words=len(words),
        cropped=cropped,
        tokens=tokens,
        credited=credited,
        hit=sums.hit,
        mass=sums.mass,
        first_key=sums.first_key,
        first_cell=sums.first_cell,
    )


def read_answer(reader: Reader, page: Page, image: Any, words: Sequence[Word], how: Settings) -> Reading:
    """Read a page by generating, or take its own text (else its words, in order) for the answer."""
    if how.answer == "generate":
        return reader.generate(page.name, image)
    return reader.given(page.name, image, page.text or " ".join(word.text for word in page.words or words))


def score(reader: Reader, reading: Reading, due: Credit) -> Sums:
    """Form the rows that predict the credited tokens in one pass over prompt and answer, and sum their statistics."""
    shape = geometry(reader.model.config)
    if not due.tokens:
        return Sums.none(shape.layers, shape.heads)
    arguments = reading.arguments(reader.decoder)
    tally = Tally(shape.layers, due.cells, arguments["inputs_embeds"].shape[1], [reading.picture.run[0]])
    watch_rows(reader.decoder, arguments, reading.rows(due.tokens), tally)
    return tally.sums()


def conclude(
    records: list[PageRecord], failed: list[FailedPage], described: dict[str, dict], *, keep_pages: bool
) -> HeadScores:
    """Make the scores of all pages; a run that says nothing about any head is an error, except in a shard."""
    if "shard" not in described["probe"]:
        require_credit(records, failed)
    return HeadScores.from_records(records, failed, **described, keep_pages=keep_pages)
