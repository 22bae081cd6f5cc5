"""What probing costs: the time that scoring adds to reading, and the memory that it adds to generation's peak.

Runs as ``headscope bench probe`` or, where Hydra is not at hand, ``python -m headscope.bench.probe out.json``.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from headscope.bench.provenance import provenance
from headscope.bench.shapes import random_qwen2_vl
from headscope.families import detect
from headscope.families.loading import check_device, load
from headscope.page.image import decode
from headscope.page.ocr import GivenWords
from headscope.page.source import bundled
from headscope.probing.credit import Credit, credit, word_cells
from headscope.probing.prompt import record
from headscope.probing.reading import Reader, Reading
from headscope.probing.run import QUESTION, score
from headscope.resources import find

MEMORY_TOKENS = 4000  # of prompt in the memory measurement
MEMORY_ANSWER = 256  # tokens generated and scored there


def run(
    *, pages: int = 40, device: str | None = None, memory: bool | None = None, commit: str | None = None
) -> dict[str, Any]:
    """Measure the time on the bundled model and, on a GPU, the memory of a 7B-shaped Qwen2-VL with random weights.

    pages: how many bundled pages to read. device: cuda where there is one. memory: whether to build the 7B model; None
    on a GPU.
    """
    check_device(device)
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    memory = place.type == "cuda" if memory is None else memory
    if memory and place.type != "cuda":
        raise ValueError(f"`memory` is measured on a GPU only, got device {place}; leave it out or give device=cuda")
    results: dict[str, Any] = {"bench": "probe", **provenance(place, commit), "time": reading_time(place, pages)}
    if memory:
        results["memory"] = peak_memory(place)
    return results


def reading_time(device: torch.device, pages: int) -> dict[str, Any]:
    """Read bundled pages with the bundled model, timing generation and scoring of each after one page to warm up."""
    model, processor, family = load(str(find("data", "reader")), dtype="float32", device=str(device))
    reader = Reader(model, processor, family, QUESTION, 320)
    chosen = bundled("probe", pages)
    times = [_timed_page(reader, page, device) for page in [chosen[0], *chosen]][1:]
    generate, scoring = (sum(part) for part in zip(*times, strict=True))
    return {
        "model": "reader-22m",
        "dtype": "float32",
        "pages": len(times),
        "generate_s": generate,
        "score_s": scoring,
        "added": scoring / generate,
        "median_added_per_page": statistics.median(score_s / generate_s for generate_s, score_s in times),
        **_identity(reader, decode(chosen[0].source)),
    }


def _timed_page(reader: Reader, page: Any, device: torch.device) -> tuple[float, float]:
    """Give the seconds that generating and scoring one page took."""
    image = decode(page.source)
    words = GivenWords()(page, image)
    start = _now(device)
    reading = reader.generate(page.name, image)
    middle = _now(device)
    due = credit(reading.answer, words, word_cells(words, reading.picture))
    score(reader, reading, due)
    return middle - start, _now(device) - middle


def peak_memory(
    device: torch.device, tokens: int = MEMORY_TOKENS, shape: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Measure the peaks of generation alone and of a probed page, on a Qwen2-VL of a real shape with random weights.

    Every token of the answer is scored against some cells of the page: as many rows as a page of print has.
    """
    reader, image = _big_reader(device, tokens, shape)
    weights = _allocated(device)
    inputs, _ = reader.ask("page", image)
    plain = _peak(device, lambda: reader.model.generate(**inputs, **reader.greedy()))
    reading = reader.generate("page", image)
    probed = _peak(device, lambda: _score_all(reader, reader.generate("page", image)))
    only_scoring = _peak(device, lambda: _score_all(reader, reading))
    return {
        "shape": "Qwen2-VL-7B" if shape is None else "given",
        "dtype": str(reader.model.dtype).removeprefix("torch."),
        "prompt_tokens": int(inputs["input_ids"].shape[1]),
        "answer_tokens": len(reading.ids),
        "weights_gib": weights / 2**30,
        "generate_peak_gib": plain / 2**30,
        "probe_peak_gib": probed / 2**30,
        "score_peak_gib": only_scoring / 2**30,
        "added_gib": (probed - plain) / 2**30,
        **_identity(reader, image),
    }


def _big_reader(device: torch.device, tokens: int, shape: dict[str, Any] | None) -> tuple[Reader, np.ndarray]:
    """Build the model, and a page of noise that fills the prompt."""
    from transformers import AutoProcessor

    processor = AutoProcessor.from_pretrained(find("data", "reader"))
    processor.image_processor.size = {"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * tokens}
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    model = random_qwen2_vl(processor, device, dtype, shape)
    model.generation_config.eos_token_id = None  # random weights may end an answer anywhere
    rows = int((tokens - 20) ** 0.5)
    size = (28 * rows, 28 * ((tokens - 20) // rows), 3)
    image = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)
    return Reader(model, processor, detect(model.config), QUESTION, min(MEMORY_ANSWER, tokens)), image


def _score_all(reader: Reader, reading: Reading) -> torch.Tensor:
    grid = reading.picture.fine.positions.reshape(-1)
    tokens = list(range(len(reading.ids)))
    return score(reader, reading, Credit(tokens, tokens, [grid[token % len(grid)][None] for token in tokens])).hit


def _identity(reader: Reader, image: np.ndarray) -> dict[str, bool]:
    """Tell whether prefill logits and greedy tokens are the same to the bit with and without the probe.

    cuDNN's attention does not repeat itself from one plain run to the next on some GPUs; `default_kernels_repeat` says
    whether the kernels that torch picks do here, and the comparison itself leaves cuDNN's out.
    """
    inputs, _ = reader.ask("page", image)
    repeat = torch.equal(_plain(reader, inputs), _plain(reader, inputs))
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
        logits, tokens = _prefill(reader, inputs), _plain(reader, inputs)
        with record(reader.decoder):
            recorded = _prefill(reader, inputs)
        reading = reader.generate("page", image)
        _score_all(reader, reading)
        return {
            "default_kernels_repeat": repeat,
            "logits_identical": torch.equal(logits, recorded) and torch.equal(logits, _prefill(reader, inputs)),
            "tokens_identical": torch.equal(tokens, reading.ids) and torch.equal(tokens, _plain(reader, inputs)),
        }


@torch.no_grad()
def _prefill(reader: Reader, inputs: Any) -> torch.Tensor:
    return reader.model(**inputs, logits_to_keep=1).logits


def _plain(reader: Reader, inputs: Any) -> torch.Tensor:
    return reader.model.generate(**inputs, **reader.greedy())[0, inputs["input_ids"].shape[1] :].cpu()


def _peak(device: torch.device, work: Any) -> int:
    """Give the most bytes allocated while some work runs, after a first run of it that settles the caches."""
    work()
    gc.collect()
    if device.type != "cuda":
        return 0
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    work()
    return torch.cuda.max_memory_allocated(device)


def _allocated(device: torch.device) -> int:
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else 0


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


if __name__ == "__main__":
    result = run(commit=sys.argv[2] if len(sys.argv) > 2 else None)
    Path(sys.argv[1]).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))
