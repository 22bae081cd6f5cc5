"""``headscope sparsify``: thresholds for a model's activations, from pages that it reads or from text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headscope.cli import summary
from headscope.cli.model import Model
from headscope.cli.place import Place, check_writable

if TYPE_CHECKING:
    from headscope.page import Page
    from headscope.sparsity import Sample, Thresholds

FOLDER = Path("sparsity")


def sparsify(
    place: Place,
    /,
    *,
    model: Model,
    keep: float,
    allocation: Literal["greedy", "uniform"],
    step: float,
    error_tokens: int,
    text: Path | None,
    context: int,
    tokens: int | None,
    answer: Literal["generate", "given"],
    prompt: str | None,
    max_new_tokens: int | None,
    dtype: str,
    device: str | None,
    device_map: str | None,
    out: Path | None,
    pages: list[Page] | None = None,
) -> None:
    """Calibrate the thresholds, write them and print what they keep."""
    from headscope.sparsity import calibrate
    from headscope.sparsity.calibrate import check_keep

    if (text is None) == (pages is None):
        raise ValueError("give either text=FILE or pages=..., what the model is calibrated on")
    check_keep(keep, step, error_tokens)
    result = place.result(out or FOLDER / f"{model.label}-{keep:g}.json")
    check_writable([result])
    if text is not None:
        source = _read(text)
        loaded, processor = model.load_any(dtype, device, device_map)
        samples = _of_text(processor, source, context, tokens)
    else:
        loaded, processor = model.load(dtype, device, device_map)
        samples = _of_pages(loaded, processor, pages or [], answer, prompt or "", max_new_tokens or 1)
    settings: dict[str, Any] = {"allocation": allocation, "step": step, "error_tokens": error_tokens}
    found = calibrate(loaded, samples, keep, **settings, name=model.name)
    found.save(result)
    print(f"{told(found)}\nwrote {result}")


def told(found: Thresholds) -> str:
    """Say what the thresholds keep of each projection, and how far a layer's output is off."""
    kept = (found.kept * found.weights).sum(0) / found.weights.sum(0)
    spread = zip(found.projections, kept.tolist(), found.kept.min(0).values, found.kept.max(0).values, strict=True)
    rows = [(name, summary.share(mean), summary.share(low), summary.share(high)) for name, mean, low, high in spread]
    data, errors = found.provenance["data"], found.provenance["errors"]
    worst = max(range(len(errors)), key=errors.__getitem__)
    lines = [
        f"model {found.model['id']}: {found.layers} layers; {data['counted']} tokens of {data['sequences']} sequences",
        summary.table(("projection", "inputs kept", "least", "most"), rows),
        f"{summary.share(found.keep)} of the projections' bytes are read",
        f"relative squared error of a layer's output: mean {sum(errors) / len(errors):.4f}, "
        f"most {errors[worst]:.4f} in layer {worst}",
    ]
    return "\n".join(lines)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"`text` must be a text file in UTF-8, {path} cannot be read: {error}") from error


def _of_text(processor: Any, text: str, context: int, tokens: int | None) -> Iterator[Sample]:
    from headscope.sparsity import cut_text

    return cut_text(getattr(processor, "tokenizer", processor), text, context=context, tokens=tokens)


def _of_pages(
    model: Any, processor: Any, pages: list[Page], answer: str, prompt: str, max_new_tokens: int
) -> Iterator[Sample]:
    """Give each page with its answer, whose tokens count: the model's own, or the page's text."""
    from headscope.families import detect
    from headscope.page.image import PageError, decode
    from headscope.probing.reading import Reader
    from headscope.sparsity import Sample

    reader = Reader(model, processor, detect(model.config), prompt, max_new_tokens)
    for page in pages:
        if answer == "given" and page.text is None:
            raise ValueError(f"`answer=given` needs the text of each page, {page.name} has none; take answer=generate")
        try:
            image = decode(page.source, name=page.name)
            given = answer == "given"
            reading = reader.given(page.name, image, page.text or "") if given else reader.generate(page.name, image)
        except PageError as error:
            print(f"left out: {error}", flush=True)
            continue
        if len(reading.ids) > 1:  # the last token of an answer predicts nothing
            yield Sample(reading.arguments(reader.decoder), reading.recorded.tokens)
