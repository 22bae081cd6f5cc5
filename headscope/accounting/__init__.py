"""Accounting: a decode step as a number of bytes, from a model's config alone."""

from headscope.accounting.config import as_config, load_config, names
from headscope.accounting.ledger import Account, account
from headscope.accounting.speculation import best_gamma, costs

__all__ = ["Account", "account", "as_config", "best_gamma", "costs", "load_config", "names"]
