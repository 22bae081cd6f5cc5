"""Scores of heads: kept in files, averaged from pages, merged, compared, exchanged with other tools."""

from headscope.scores.compare import Difference, diff
from headscope.scores.formats import as_scores, export, read_any
from headscope.scores.head_scores import HeadScores
from headscope.scores.merge import merge
from headscope.scores.record import FailedPage, PageRecord
from headscope.scores.shipped import find_shipped
from headscope.scores.totals import NothingScoredError, require_credit

__all__ = [
    "Difference",
    "FailedPage",
    "HeadScores",
    "NothingScoredError",
    "PageRecord",
    "as_scores",
    "diff",
    "export",
    "find_shipped",
    "merge",
    "read_any",
    "require_credit",
]
