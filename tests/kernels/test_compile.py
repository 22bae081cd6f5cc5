"""The kernels compile for an H100 or H200 (sm_90) on a machine without a GPU."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from headscope.kernels.append import append_kernel
from headscope.kernels.backend import INTERPRETED, power_of_2, triton
from headscope.kernels.decode import share_kernel, tuning
from headscope.kernels.gather import pack_kernel
from headscope.kernels.linear import linear_kernel
from headscope.kernels.linear_tuning import tuning as linear_tuning
from headscope.kernels.rotate import rotate_kernel
from headscope.kernels.shares import combine_kernel
from headscope.kernels.sparse_split import finish_kernel, part_kernel
from headscope.kernels.sparse_whole import Whole, whole_kernel
from headscope.kernels.verify import main_part
from headscope.kernels.verify import share_kernel as verify_kernel
from headscope.kernels.verify_tuning import tuning as verify_tuning

pytestmark = pytest.mark.skipif(triton is None or INTERPRETED, reason="needs Triton's compiler, not its interpreter")

SHARED_BYTES = 227 * 1024  # that one program may take on an H200
TYPES = {"starts": "*i64", "ends": "*i64", "positions": "*i64", "lengths": "*i32", "part": "*fp32", "part_lse": "*fp32"}
NUMBERS = {"scale": "fp32", "lse": "*fp32", "eps": "fp32"}
NUMBERS |= dict.fromkeys(("squares", "new_squares", "partial", "frequencies"), "*fp32") | {"arrived": "*i32"}
NUMBERS |= dict.fromkeys(("threshold", "threshold_1", "threshold_2"), "fp32")
TENSORS = ("query", "key", "value", "output", "source_key", "source_value", "new_key", "new_value", "x", "gain")
TENSORS += (
    "weight",
    "weight_1",
    "weight_2",
    "bias",
    "bias_1",
    "bias_2",
    "residual",
    "states",
    "query_gain",
    "key_gain",
)
EVEN = ("inputs", "outputs", "outputs_1", "outputs_2", "columns")  # widths of models, all multiples of 16
FORMS = [(1, 32, "bf16"), (7, 64, "bf16"), (7, 80, "fp16"), (4, 96, "bf16"), (16, 128, "bf16"), (1, 128, "fp32")]


def compiled(kernel: Any, dtype: str, warps: int = 4, registers: int | None = None, **constants: Any) -> Any:
    """Compile a kernel as it is launched: aligned addresses and widths, all else of any value."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    types = {**TYPES, **NUMBERS, **dict.fromkeys(TENSORS, f"*{dtype}"), **dict.fromkeys(constants, "constexpr")}
    signature = {name: types.get(name, "i32") for name in kernel.arg_names}
    even = [kind[0] == "*" or name in EVEN for name, kind in signature.items()]
    aligned = {(place,): [["tt.divisibility", 16]] for place, is_even in enumerate(even) if is_even}
    source = ASTSource(kernel, signature, constants, aligned)
    options = {"num_warps": warps, "maxnreg": registers}
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)


@pytest.fixture(autouse=True)
def own_triton_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


@pytest.mark.parametrize(("group", "dim", "dtype"), [*FORMS, (7, 256, "bf16")])
def test_decode_compiles_and_loads_16_bytes_at_a_time_ahead_of_use(group: int, dim: int, dtype: str) -> None:

    tuned, dims = tuning(dim), power_of_2(dim)
    tile = tuned.tile(dims, 4 if dtype == "fp32" else 2)
    shape = {"GROUP": group, "DIM": dim, "TILE": tile, "BLOCK": 128, "OVERLAP": True, "INTERPRETED": False}
    share = compiled(share_kernel, dtype, tuned.warps, **shape, ROWS=16, DIMS=dims, STAGES=tuned.stages)
    assert "cp.async.cg.shared.global" in share.asm["ptx"]  # only these are 16 bytes wide
    assert share.metadata.shared <= SHARED_BYTES
    del shape["GROUP"]
    assert compiled(combine_kernel, dtype, **shape, COLUMNS=32, PARTS=64).asm["cubin"]


def assembler_says(kernel: Any, path: Path) -> str:
    """Assemble once more, for what the assembler has to say."""
    (path / "kernel.ptx").write_text(kernel.asm["ptx"], encoding="utf-8")
    command = [triton.knobs.nvidia.ptxas.path, "-arch=sm_90a", "-v", str(path / "kernel.ptx"), "-o", "/dev/null"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("pairs", "dim", "dtype"),
    [(14, 128, "bf16"), (63, 128, "fp16"), (70, 80, "bf16"), (112, 128, "bf16"), (70, 256, "bf16"), (14, 64, "fp32")],
)
def test_verify_compiles_and_keeps_its_products_in_flight(pairs: int, dim: int, dtype: str, tmp_path: Path) -> None:
    kind = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[dtype]
    tuned, main = verify_tuning(dim, pairs, kind), main_part(dim)
    shape = {"DIM": dim, "MAIN": main, "DIMS": power_of_2(main, 16), "ROWS": tuned.rows, "TILE": tuned.tile}
    shape |= {"BLOCK": 128, "STAGES": tuned.stages, "OVERLAP": True, "INTERPRETED": False}
    found = compiled(verify_kernel, dtype, tuned.warps, tuned.registers, **shape)
    assert "cp.async.cg.shared.global" in found.asm["ptx"]  # only these are 16 bytes wide
    assert ("wgmma.mma_async" in found.asm["ptx"]) == (tuned.rows >= 64)
    assert "serialized" not in assembler_says(found, tmp_path)
    assert found.metadata.shared <= SHARED_BYTES


@pytest.mark.parametrize("dim", [32, 80, 256])
def test_pack_and_append_compile(dim: int) -> None:

    shape = {"DIM": dim, "DIMS": power_of_2(dim)}
    assert compiled(pack_kernel, "bf16", **shape, TILE=32, STEPS=6).asm["cubin"]
    assert compiled(append_kernel, "bf16", 1, **shape, TILE=1).asm["cubin"]
    assert compiled(append_kernel, "bf16", **shape, TILE=8).asm["cubin"]


@pytest.mark.parametrize("rows", [1, 16, 32])
@pytest.mark.parametrize("kind", ["project", "gate_up", "add"])
def test_projections_compile_and_load_16_bytes_at_a_time(kind: str, rows: int) -> None:
    weights = {"project": 3, "gate_up": 2, "add": 1}[kind]
    tuned = linear_tuning(rows, kind, 10**8)
    shape = {"NORM": kind != "add", "KIND": kind, "BIAS": kind == "project", "WEIGHTS": weights, "ROWS": rows}
    shape |= {"OUT": tuned.out, "IN": tuned.inputs, "SPLIT": True, "PARTS": 256, "STAGES": tuned.stages}
    found = compiled(linear_kernel, "bf16", tuned.warps, **shape, OVERLAP=True, INTERPRETED=False)
    assert ".v4" in found.asm["ptx"] or "cp.async.cg.shared.global" in found.asm["ptx"]
    assert "griddepcontrol.wait" in found.asm["ptx"] and found.metadata.shared <= SHARED_BYTES


@pytest.mark.parametrize("norm", [False, True])
def test_rotate_compiles(norm: bool) -> None:
    shape = {"NORM": norm, "DIM": 80, "HALVES": 64, "OVERLAP": True, "INTERPRETED": False}
    assert compiled(rotate_kernel, "bf16", 1, **shape).asm["cubin"]


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("words", [1, 2])
def test_sparse_projections_compile_and_load_16_bytes_at_a_time_all_before_their_use(words: int, norm: bool) -> None:
    shape = {"NORM": norm, "WEIGHTS": 3, "OUT": 256, "WORDS": words, "TOGETHER": 4, "PARTS": 128}
    found = compiled(part_kernel, "bf16", 1, **shape, OVERLAP=True, INTERPRETED=False)
    loads = [line for line in found.asm["ptx"].splitlines() if "ld.global" in line and ".v4" in line]
    assert len(loads) == 4 and "bar.sync" not in found.asm["ptx"].split("ld.global", 1)[1].split("st.global")[0]
    done = {"KIND": "gate_up", "BIAS": True, "SPLIT": 112, "TOGETHER": 128, "OUT": 32}
    assert ".v4" in compiled(finish_kernel, "bf16", 4, **done, OVERLAP=True, INTERPRETED=False).asm["ptx"]


@pytest.mark.parametrize("kind", ["project", "gate_up", "add"])
def test_sparse_projections_in_one_kernel_compile(kind: str) -> None:
    tuned, weights = Whole(), {"project": 3, "gate_up": 2, "add": 1}[kind]
    shape = {"NORM": kind != "add", "KIND": kind, "BIAS": kind == "project", "WEIGHTS": weights, "PARTS": 128}
    shape |= {"OUT": tuned.out, "GROUPS": tuned.groups(2), "TOGETHER": tuned.together}
    found = compiled(whole_kernel, "bf16", tuned.warps, **shape, OVERLAP=True, INTERPRETED=False)
    assert ".v4" in found.asm["ptx"] and found.metadata.shared <= SHARED_BYTES
