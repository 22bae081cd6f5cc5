"""Attaching: decode on a ragged cache inside a `with` block."""

from headscope.attach.block import compress

__all__ = ["compress"]
