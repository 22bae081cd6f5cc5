"""Head scores: how much each (layer, head) looks at the words that the model is reading."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from headscope.files import write_atomically
from headscope.scores.record import FailedPage, PageRecord
from headscope.scores.score_file import is_count, parse, to_text
from headscope.scores.totals import average, count

REDUCTIONS = ("sum", "mean", "max")


class Geometry(Protocol):
    """Anything that knows a model's layers, query heads and KV heads."""

    @property
    def layers(self) -> int: ...
    @property
    def heads(self) -> int: ...
    @property
    def kv_heads(self) -> int: ...


@dataclass(frozen=True, eq=False)
class HeadScores:
    """Scores of all heads of one model. KV heads serve contiguous groups of query heads: head // (heads / kv_heads).

    values: float32 [layer, head] on the CPU, finite and non-negative. model, probe, software, summary: what the file
    says about them. pages: per-page records, or None. failed: pages that could not be probed. origin: the file they
    came from, for errors.
    """

    values: Tensor
    kv_heads: int
    model: dict[str, Any] = field(default_factory=dict)
    probe: dict[str, Any] = field(default_factory=dict)
    software: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    pages: tuple[PageRecord, ...] | None = None
    failed: tuple[FailedPage, ...] = ()
    origin: str | None = None

    def __post_init__(self) -> None:
        where = f"`{self.origin}`: " if self.origin else ""
        values = as_values(self.values, where)
        heads = values.shape[1]
        if not is_count(self.kv_heads) or heads % self.kv_heads:
            raise ValueError(f"{where}`kv_heads` must divide the {heads} heads of a layer, got {self.kv_heads!r}")
        geometry = {"layers": values.shape[0], "heads": heads, "kv_heads": int(self.kv_heads)}
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "kv_heads", int(self.kv_heads))
        object.__setattr__(self, "model", self.model | geometry)

    @classmethod
    def from_values(cls, values: Any, kv_heads: int | None = None, **model: Any) -> HeadScores:
        """Make scores of an array, tensor or nested list [layer, head]; no `kv_heads`: every head has its own."""
        tensor = as_values(values)
        return cls(tensor, tensor.shape[1] if kv_heads is None else kv_heads, model)

    @classmethod
    def from_records(
        cls,
        records: Iterable[PageRecord],
        failed: Iterable[FailedPage] = (),
        *,
        model: dict[str, Any],
        probe: dict[str, Any],
        software: dict[str, Any],
        keep_pages: bool = False,
    ) -> HeadScores:
        """Average page records: an fp64 sum in (hash, name) order, divided by the number of pages.

        model: needs `layers`, `heads` and `kv_heads`. probe: the settings; needs `statistic`, and gets the counts of
        pages, words and tokens. A part of a sharded run (`probe["shard"]`, such as "1/4") always keeps its pages.
        """
        ordered = tuple(sorted(records, key=lambda record: record.key))
        failures = tuple(sorted(failed))
        values, summary = average(ordered, probe.get("statistic"), (model["layers"], model["heads"]))
        counts = count(probe, ordered, len(failures))
        pages = ordered if keep_pages or probe.get("shard") else None
        return cls(values, model["kv_heads"], model, counts, software, summary, pages, failures)

    @property
    def layers(self) -> int:
        """Number of layers."""
        return self.values.shape[0]

    @property
    def heads(self) -> int:
        """Number of query heads in a layer."""
        return self.values.shape[1]

    @property
    def geometry(self) -> tuple[int, int, int]:
        """Layers, query heads and KV heads."""
        return self.layers, self.heads, self.kv_heads

    def kv(self, reduce: str = "sum") -> Tensor:
        """Reduce the scores of the query heads that share a KV head by `sum`, `mean` or `max`: float32 [layer, kv]."""
        if reduce not in REDUCTIONS:
            near = difflib.get_close_matches(str(reduce), REDUCTIONS, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(f"`reduce` must be one of {', '.join(REDUCTIONS)}, got {reduce!r}{hint}")
        groups = self.values.view(self.layers, self.kv_heads, -1)
        return groups.amax(-1) if reduce == "max" else getattr(groups, reduce)(-1)

    def top(self, k: int) -> list[tuple[int, int, float]]:
        """Give the k best heads as (layer, head, score), best first; of equal ones the lowest (layer, head) first."""
        if k < 1:
            raise ValueError(f"`k` must be at least 1, got {k}")
        scores, places = self.values.flatten().sort(descending=True, stable=True)
        found = zip(places[:k].tolist(), scores[:k].tolist(), strict=True)
        return [(place // self.heads, place % self.heads, score) for place, score in found]

    def check(self, geometry: Geometry | Sequence[int], *, query_heads: bool = False) -> HeadScores:
        """Refuse scores that do not fit a model of (layers, heads, kv_heads); one score a KV head fits as well.

        query_heads: what comes next speaks of single query heads, so that scores of KV heads do not do.
        Needs only the model's config, so it comes before anything is loaded. Gives the scores back.
        """
        expected = _triple(geometry)
        layers, _, kv_heads = expected
        if self.geometry not in (expected, (layers, kv_heads, kv_heads)):
            raise ValueError(
                f"`{self.origin or 'scores'}`: expected {_words(expected)}, found {_words(self.geometry)}; "
                "these scores are another model's, or were imported with another `kv_heads`"
            )
        if query_heads and self.heads != expected[1]:
            raise ValueError(
                f"`{self.origin or 'scores'}`: expected a score for each of the {expected[1]} query heads of a layer, "
                f"found one for each of its {self.heads} KV heads"
            )
        return self

    def save(self, path: str | Path, pages: bool | None = None) -> None:
        """Write the score file, whole or not at all.

        pages: with the per-page records (True) or without (False); None writes them if there are any.
        """
        if pages and self.pages is None:
            raise ValueError("`pages=True` needs per-page values, which these scores do not hold; probe with them kept")
        if pages is False and self.probe.get("shard"):
            raise ValueError(f"`pages=False`: shard {self.probe['shard']} needs its per-page values to be merged")
        write_atomically(path, to_text(self, pages is not False))

    @classmethod
    def load(cls, path: str | Path) -> HeadScores:
        """Read a score file; what is not whole and valid is an error with the file, the expected and the found."""
        return cls(**parse(path))


def as_values(values: Any, where: str = "") -> Tensor:
    """Give float32 [layer, head] on the CPU, a copy. Not 2-D, not finite or negative: a ValueError naming the head."""
    if isinstance(values, Tensor):
        values = (values.double() if values.is_floating_point() else values).detach().cpu()
    try:
        array = np.asarray(values)
    except (TypeError, ValueError):  # rows of different lengths
        array = np.empty(0, object)
    if array.dtype.kind not in "fiu":
        raise ValueError(f"{where}`values` must be numbers [layer, head], every layer with the same number of heads")
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"{where}`values` must be [layer, head], got shape {list(array.shape)}")
    with np.errstate(over="ignore", under="ignore"):
        single = array.astype(np.float32) + np.float32(0)  # turns -0.0 into 0.0
    bad = np.argwhere(~np.isfinite(single) | (array < 0))
    if len(bad):
        layer, head = bad[0].tolist()
        raise ValueError(
            f"{where}scores must be finite float32 numbers of at least 0, "
            f"found {float(array[layer, head])} at layer {layer}, head {head} ({len(bad)} such in all)"
        )
    return torch.from_numpy(single)


def _triple(geometry: Geometry | Sequence[int]) -> tuple[int, int, int]:
    if isinstance(geometry, Sequence):
        layers, heads, kv_heads = geometry
        return layers, heads, kv_heads
    return geometry.layers, geometry.heads, geometry.kv_heads


def _words(geometry: tuple[int, int, int]) -> str:
    layers, heads, kv_heads = geometry
    return f"{layers} layers x {heads} heads with {kv_heads} KV heads"
