"""Kernels over ragged segments: one file per operation, its plain fp32 reference first, then its Triton kernel."""

from headscope.kernels.append import append
from headscope.kernels.decode import ragged_decode
from headscope.kernels.gather import pack
from headscope.kernels.verify import ragged_verify

__all__ = ["append", "pack", "ragged_decode", "ragged_verify"]
