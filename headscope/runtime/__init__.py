"""The runtime: one step of a model on segments, for drafting and verifying."""

from headscope.runtime.forward import Forward
from headscope.runtime.stock import StockForward, stock
from headscope.runtime.window import WindowedSegments

__all__ = ["Forward", "StockForward", "WindowedSegments", "stock"]
