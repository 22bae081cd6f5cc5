"""A policy: what changes a model's decode steps, as a function that makes a `with` block of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

Policy = Callable[[Any], AbstractContextManager[Any]]


@contextmanager
def dense(model: Any) -> Iterator[Any]:
    """Change nothing: what every configuration is compared with."""
    yield model


def together(*policies: Policy) -> Policy:
    """Make one policy of several, entered in the order given and left in the other."""

    @contextmanager
    def all_of_them(model: Any) -> Iterator[Any]:
        with ExitStack() as exits:
            for policy in policies:
                exits.enter_context(policy(model))
            yield model

    return all_of_them
