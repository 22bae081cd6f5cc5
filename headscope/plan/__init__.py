"""Planning: which configuration to run on a GPU, how fast it will be, and on what evidence."""

from headscope.plan.gpu import Gpu, find_gpu
from headscope.plan.recommend import Plan, plan
from headscope.plan.results import Results

__all__ = ["Gpu", "Plan", "Results", "find_gpu", "plan"]
