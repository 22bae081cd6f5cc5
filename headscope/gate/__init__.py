"""The gate: a configuration is admitted when perplexity and retrieval both say so."""

from headscope.gate.policy import Policy, dense, together
from headscope.gate.run import Measured, measure
from headscope.gate.suite import Suite, build
from headscope.gate.verdict import Verdict, judge

__all__ = ["Measured", "Policy", "Suite", "Verdict", "build", "dense", "judge", "measure", "together"]
