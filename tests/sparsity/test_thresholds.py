"""Thresholds and their files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from headscope.families.projections import PROJECTIONS, projections
from headscope.sparsity import Thresholds
from tests.attach.models import MODELS
from tests.sparsity.conftest import tiny_thresholds


@pytest.fixture
def path(tmp_path: Path) -> Path:
    tiny_thresholds("llama").save(tmp_path / "thresholds.json")
    return tmp_path / "thresholds.json"


def changed(path: Path, **change: Any) -> Path:
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    return path


def test_a_file_gives_back_what_was_saved(path: Path) -> None:
    saved, found = tiny_thresholds("llama"), Thresholds.load(path)
    assert torch.equal(found.values, saved.values) and torch.equal(found.weights, saved.weights)
    assert torch.allclose(found.kept, saved.kept, atol=1e-6)
    assert found.model == saved.model and found.provenance == saved.provenance
    found.save(path.with_name("again.json"))
    assert path.read_bytes() == path.with_name("again.json").read_bytes()


def test_the_kept_part_is_weighted_by_bytes() -> None:
    weights = [[1, 1, 1, 1, 4, 4, 4], [1] * 7]
    kept = [[1, 1, 1, 1, 0.5, 0.5, 0.5], [0.25] * 7]
    thresholds = Thresholds(torch.zeros(2, 7), kept, weights)  # type: ignore[arg-type]
    assert thresholds.keep_of_layers.tolist() == [10 / 16, 0.25]
    assert thresholds.keep == pytest.approx((10 + 0.25 * 7) / 23)
    assert list(thresholds.of_layer(0)) == list(PROJECTIONS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "headscope.budget/1"}, 'expected "format": "headscope.thresholds/1", found \'headscope.budget/1\''),
        ({"model": []}, "expected `model` to be a dict, found list"),
        ({"projections": ["q_proj"]}, "expected 1 `weights`, one a projection, in layer 0, found 7"),
        ({"thresholds": [[0.1] * 7]}, "expected 1 rows of `weights`, one a layer, found 3"),
        ({"thresholds": [[0.1] * 6] * 3}, "expected 7 `thresholds`, one a projection, in layer 0, found 6"),
        ({"thresholds": [[-0.1] * 7] * 3}, "expected finite numbers from 0 up in layer 0 of `thresholds`, found -0.1"),
        ({"kept": [[1.5] * 7] * 3}, "expected numbers from 0 to 1 in layer 0 of `kept`, found 1.5"),
        ({"weights": [[0] * 7] * 3}, "expected whole numbers above 0 in layer 0 of `weights`, found 0"),
        ({"projections": ["a", "b", "c", "d", "e", "f", "g"]}, "expected `projections` q_proj, .* found \\('a', 'b'"),
    ],
)
def test_a_file_that_is_not_valid_is_named_with_what_was_expected_and_found(
    change: dict[str, Any], message: str, path: Path
) -> None:
    with pytest.raises(ValueError, match=f"`{path}`: {message}"):
        Thresholds.load(changed(path, **change))


def test_no_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="none.json`: expected a threshold file, found no file of that name"):
        Thresholds.load(tmp_path / "none.json")


def test_another_models_thresholds_are_refused(path: Path) -> None:
    layers, found = projections(MODELS["llama"]()[0]), Thresholds.load(path)
    assert found.check(layers) is found
    with pytest.raises(ValueError, match=f"`{path}`: expected 2 layers, found 3; these thresholds are another model's"):
        found.check(layers[:2])
    other = [*layers[:2], layers[2] | {"k_proj": torch.nn.Linear(64, 16)}]
    with pytest.raises(ValueError, match="expected 1024 weights in k_proj of layer 2, found 2048; .* another model's"):
        found.check(other)


@pytest.mark.parametrize("values", [torch.full((2, 7), torch.nan), torch.full((2, 7), -1.0), torch.zeros(2, 6)])
def test_values_that_are_no_thresholds_are_refused(values: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="`values`"):
        Thresholds(values, torch.ones(2, 7), torch.ones(2, 7))
