"""Reports: the head map, and one HTML page that shows heads reading."""

from headscope.report.head_map import draw
from headscope.report.page import write
from headscope.report.view import PageView, TokenView

__all__ = ["PageView", "TokenView", "draw", "write"]
