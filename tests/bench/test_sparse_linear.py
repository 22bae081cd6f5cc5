"""The bench of sparse projections, as far as it goes without a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from headscope.bench.sparse_linear import run
from headscope.bench.sparse_tuning import SPLITS, WHOLES
from headscope.bench.stack import LAYERS, SHAPES
from headscope.kernels.sparse_linear import tuning


def test_the_layers_are_those_of_the_models_and_many_times_the_cache() -> None:
    sizes = {shape.name: shape.layer_bytes() for shape in SHAPES}
    assert sizes == {"qwen2-vl-7b": 466_092_032, "llama-3.1-8b": 436_207_616}
    assert LAYERS >= 8 and all(LAYERS * shape.layer_bytes(["o"]) / 2 > 60e6 for shape in SHAPES)


def test_what_ships_is_among_what_is_tuned() -> None:
    shipped = {tuning(inputs, sum(outputs)) for shape in SHAPES for inputs, outputs in shape.groups.values()}
    assert shipped <= {*SPLITS, *WHOLES}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_nothing_is_measured(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="measured on a GPU"):
        run(tmp_path / "out.json")
    assert not list(tmp_path.iterdir())
