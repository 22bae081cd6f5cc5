"""The kernels' backend: Triton where there is one, and which tensors go to it."""

from __future__ import annotations

import os
from functools import cache
from typing import Any, no_type_check

import torch

try:
    import triton
    import triton.language as tl
except ImportError:  # PyTorch's builds without CUDA come without Triton; every operation has a reference for them
    triton = tl = None  # type: ignore[assignment]

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # kernels on CPU tensors, for tests
INTERPRETED_MULTIPROCESSORS = 3
COUNTS = ["segments", "shares", "pairs", "span"]  # arguments of kernels whose numbers are not compiled in


def jit(function: Any) -> Any:
    """Give a function as a Triton kernel, compiled once for all counts; without Triton, the function, never called."""
    return function if triton is None else triton.jit(function, do_not_specialize=COUNTS)


def on_triton(tensor: torch.Tensor) -> bool:
    """Tell whether kernels can run on this tensor's device and dtype; the references serve all others."""
    return triton is not None and (tensor.is_cuda or INTERPRETED) and tensor.dtype in DTYPES


@cache
def multiprocessors(device: torch.device) -> int:
    """Count a GPU's multiprocessors."""
    if device.type != "cuda":
        return INTERPRETED_MULTIPROCESSORS
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def early(overlap: bool) -> dict[str, Any]:
    """Give the launch option of a kernel that may start before the previous one has ended."""
    return {"launch_pdl": True} if overlap else {}


@cache
def overlaps(device: torch.device) -> bool:
    """Tell whether a kernel may start while the one before it ends: programmatic dependent launch, from Hopper on."""
    if device.type != "cuda" or INTERPRETED or torch.version.hip:
        return False
    return torch.cuda.get_device_capability(device) >= (9, 0)


def power_of_2(number: int, least: int = 1) -> int:
    """Give the smallest power of 2 that is not below a number, nor below `least`."""
    return max(least, 1 << max(number - 1, 0).bit_length())


@jit
@no_type_check
def narrow(numbers, dtype: tl.constexpr, INTERPRETED: tl.constexpr):
    """Round fp32 numbers to a dtype, to nearest even; the interpreter would cut bfloat16 off."""
    if INTERPRETED and dtype == tl.bfloat16:
        bits = numbers.to(tl.int32, bitcast=True)
        numbers = ((bits + 0x7FFF + ((bits >> 16) & 1)) & -65536).to(tl.float32, bitcast=True)
    return numbers.to(dtype)


@jit
@no_type_check
def add_product(total, left, right, INTERPRETED: tl.constexpr):
    """Add a matrix product, accumulated in fp32; the interpreter cannot multiply bfloat16."""
    if INTERPRETED:
        left = left.to(tl.float32)
        right = right.to(tl.float32)
    return tl.dot(left, right, total, input_precision="ieee")


@jit
@no_type_check
def await_previous(OVERLAP: tl.constexpr):
    """Wait until all that the previous kernel wrote is there, and let the next one start: before the first access.

    In this order it is 2 % faster for a whole decode step on an H200 than the other way round.
    """
    if OVERLAP:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
