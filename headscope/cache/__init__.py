"""The ragged cache: each KV head holds as many of a prompt's tokens as its budget says."""

from headscope.cache.layer import RaggedLayer
from headscope.cache.ragged import RaggedCache

__all__ = ["RaggedCache", "RaggedLayer"]
