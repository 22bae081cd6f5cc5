"""Fused decoding: a step of a Llama-like decoder stack in few kernels, which a CUDA graph can hold."""

from headscope.fused.stack import Stack, find_stack
from headscope.fused.step import FusedStep, fuse

__all__ = ["FusedStep", "Stack", "find_stack", "fuse"]
