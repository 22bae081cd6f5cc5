"""``headscope report``: a score file as a head map and an HTML page, or a bench's result as a table and a plot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscope.cli.model import Model
from headscope.cli.place import Place, check_apart, check_writable

if TYPE_CHECKING:
    from headscope.page import Page
    from headscope.page.ocr import Engine
    from headscope.probing.reading import Reader
    from headscope.probing.run import Settings
    from headscope.report import PageView
    from headscope.scores import HeadScores


def report(
    place: Place,
    /,
    *,
    scores: Path | None,
    result: Path | None,
    pages: list[Page],
    ocr: Engine,
    report_pages: int,
    dtype: str,
    device: str | None,
    device_map: str | None,
    out: Path | None,
    picture: Path | None,
    cache: Path | None,
    model: Model | None = None,
) -> None:
    """Draw a score file; with a model, let it read some pages once more to show where its heads look.

    Or draw a bench's result and print its table.
    """
    if scores is not None and result is not None:
        raise ValueError("`scores` and `result` exclude each other; give one of them")
    if scores is None:
        if result is None:
            raise ValueError("give what is to be shown: `scores` or `result`")
        _show_result(place, result, picture)
        return
    from headscope.page.ocr import Cached, cache_folder
    from headscope.report import draw, write
    from headscope.scores import as_scores

    found = as_scores(scores)
    check_count(report_pages)
    if model is not None:
        found.check(model.geometry(), query_heads=True)
    page = place.result(out or scores.with_suffix(".html"))
    drawn = place.result(picture) if picture else page.with_suffix(".png")
    check_apart([scores, page, drawn])
    check_writable([page, drawn])
    shown: Sequence[PageView] = ()
    if model is not None:
        loaded, processor = model.load(dtype, device, device_map)
        how = settings(found, model)
        engine = Cached(ocr, cache or cache_folder() / "ocr")
        shown = views(reader(loaded, processor, how), pages[:report_pages], found, engine, how)
    write(page, found, shown)
    draw(found, drawn)
    print(f"wrote {page}, {drawn}")


def _show_result(place: Place, path: Path, picture: Path | None) -> None:
    from headscope.cli import result

    document = result.read(path)
    drawn = place.result(picture or path.with_suffix(".png"))
    check_writable([drawn])
    check_apart([path, drawn])
    print(f"{result.show(document, path, drawn)}\n\nwrote {drawn}")


def check_count(report_pages: int) -> None:
    """Refuse a number of pages that is none."""
    if report_pages < 0:
        raise ValueError(f"`report_pages` must be at least 0, got {report_pages}")


def reader(model: Any, processor: Any, how: Settings) -> Reader:
    """Wrap a loaded model as the probe does."""
    from headscope.families import detect
    from headscope.probing.reading import Reader

    return Reader(model, processor, detect(model.config), how.prompt, how.max_new_tokens)


def views(reader: Reader, pages: Sequence[Page], scores: HeadScores, ocr: Engine, how: Settings) -> list[PageView]:
    """Show pages as heads read them; one that cannot be read is named and left out."""
    from headscope.page.image import PageError
    from headscope.probing.views import view_page

    shown = []
    for page in pages:
        try:
            shown.append(view_page(reader, page, scores, ocr, how))
        except PageError as error:
            print(f"left out: {error}")
    return shown


def settings(scores: HeadScores, model: Model) -> Settings:
    """Read pages with the settings that found the scores, so far as their file tells them."""
    from dataclasses import fields

    from headscope.probing.run import Settings

    known = {field.name for field in fields(Settings)}
    asked = {"prompt": model.prompt, "max_new_tokens": model.max_new_tokens}
    probed = {key: value for key, value in scores.probe.items() if key in known}
    return Settings(**{key: value for key, value in (asked | probed).items() if value is not None})
