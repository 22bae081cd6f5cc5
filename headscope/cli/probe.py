"""``headscope probe``: pages in, a score file and a head map out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headscope.cli import summary
from headscope.cli.model import Model
from headscope.cli.place import Place, check_writable

if TYPE_CHECKING:
    from headscope.page import Page
    from headscope.page.ocr import Engine
    from headscope.probing.run import Settings
    from headscope.scores import HeadScores


@dataclass(frozen=True)
class Files:
    """Where one probe writes. state: finished pages, kept until the score file is written."""

    result: Path
    picture: Path | None
    html: Path | None
    state: Path

    @classmethod
    def at(cls, place: Place, out: Path, shard: str | None, picture: Path | None, report: bool) -> Files:
        """Say where the files of a result named ``out`` go, and refuse a place that cannot be written.

        A part of a sharded probe gets a picture only where one is asked for.
        """
        result = place.result(out, shard)
        drawn = place.result(picture, shard) if picture else None if shard else result.with_suffix(".png")
        files = cls(result, drawn, result.with_suffix(".html") if report else None, place.state(out, shard))
        check_writable([*files.written, files.state])
        return files

    @property
    def written(self) -> list[Path]:
        """The files that stay."""
        return [path for path in (self.result, self.picture, self.html) if path is not None]


def probe(
    place: Place,
    /,
    *,
    model: Model,
    pages: list[Page],
    ocr: Engine,
    prompt: str,
    answer: Literal["generate", "given"],
    match: Literal["aligned", "paper"],
    statistic: Literal["hit", "mass"],
    cells: Literal["fine", "both"],
    max_new_tokens: int,
    seed: int,
    shard: str | None,
    dtype: str,
    device: str | None,
    device_map: str | None,
    out: Path | None,
    picture: Path | None,
    report: bool,
    report_pages: int,
    keep_pages: bool,
    progress: bool,
    cache: Path | None,
) -> None:
    """Probe a model, write its score file and pictures, and print a summary."""
    from headscope.cli.report import check_count
    from headscope.page.ocr import Cached, cache_folder
    from headscope.probing import run
    from headscope.probing.ranks import Ranks

    check_count(report_pages)
    settings = run.Settings(prompt, answer, match, statistic, cells, max_new_tokens, seed)
    ranks = Ranks.from_environment()
    chosen = run.choose(pages, None, shard)
    files = Files.at(place, out or Path("scores") / f"{model.label}.json", shard, picture, report)
    engine = Cached(ocr, cache or cache_folder() / "ocr")
    loaded, processor = model.load(dtype, device, device_map, ranks.local)
    with _progress(ranks.own_file(files.state)):
        scores = run.probe(
            loaded,
            processor,
            pages,
            ocr=engine,
            shard=shard,
            ranks=ranks,
            name=model.name,
            state=files.state,
            keep_pages=keep_pages,
            progress=progress and ranks.first,
            **vars(settings),
        )
    if ranks.first:
        _write(scores, files)
        if files.html:
            _write_html(scores, loaded, processor, chosen[:report_pages], engine, settings, files.html)
        print(summary.of_scores(scores))
        print(f"wrote {', '.join(map(str, files.written))}")
    if own := ranks.own_file(files.state):
        own.unlink(missing_ok=True)


@contextmanager
def _progress(state: Path | None) -> Iterator[None]:
    """Say what Ctrl-C keeps; a probe that came to its end and found nothing leaves nothing to go on with."""
    from headscope.scores import NothingScoredError

    made = [] if state is None else [folder for folder in state.parents if not folder.exists()]
    try:
        yield
    except NothingScoredError:
        if state is not None:
            state.unlink(missing_ok=True)
        for folder in made:
            with suppress(OSError):  # never made, or another process writes there too
                folder.rmdir()
        raise
    except KeyboardInterrupt:
        if state is not None and state.is_file():
            text = "stopped; finished pages are kept, and the same command goes on from there"
            raise KeyboardInterrupt(text) from None
        raise


def _write(scores: HeadScores, files: Files) -> None:
    from headscope.report import head_map

    scores.save(files.result)
    if files.picture:
        head_map.draw(scores, files.picture)


def _write_html(
    scores: HeadScores, model: Any, processor: Any, pages: list[Page], ocr: Engine, how: Settings, path: Path
) -> None:
    from headscope.cli.report import reader, views
    from headscope.report import write

    write(path, scores, views(reader(model, processor, how), pages, scores, ocr, how))
