"""Budgets: how many of a prompt's tokens every (layer, KV head) keeps, planned from head scores, kept in files."""

from headscope.budget.budget import Budget
from headscope.budget.plan import allocate

__all__ = ["Budget", "allocate"]
