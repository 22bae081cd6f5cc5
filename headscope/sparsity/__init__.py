"""Activation sparsity: a decode step reads only the weights of inputs above a threshold (TEAL, Liu et al., 2024)."""

from headscope.sparsity.block import sparsify
from headscope.sparsity.calibrate import calibrate
from headscope.sparsity.sample import Sample, cut_text
from headscope.sparsity.switch import Switch
from headscope.sparsity.thresholds import Thresholds

__all__ = ["Sample", "Switch", "Thresholds", "calibrate", "cut_text", "sparsify"]
