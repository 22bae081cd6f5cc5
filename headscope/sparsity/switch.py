"""A switch: turns the sparsity of a block off and on while the block runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager


class Switch:
    """Whether a `sparsify` block is sparse just now; it costs nothing to turn.

    A speculative decoder drafts with it on and verifies with it off:

        switch = Switch()
        with hs.sparsify(model, thresholds, switch=switch):
            draft = model(...)
            with switch.off():
                dense = model(...)  # as without the block
    """

    def __init__(self, on: bool = True) -> None:
        self.is_on = on

    def off(self) -> AbstractContextManager[None]:
        """Turn it off inside a `with` block, and back afterwards."""
        return self._turned(False)

    def on(self) -> AbstractContextManager[None]:
        """Turn it on inside a `with` block, and back afterwards."""
        return self._turned(True)

    @contextmanager
    def _turned(self, on: bool) -> Iterator[None]:
        before, self.is_on = self.is_on, on
        try:
            yield
        finally:
            self.is_on = before
