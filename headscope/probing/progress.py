"""The progress bar of a probe: pages, tokens credited, pages failed, time left."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from headscope.scores import FailedPage, PageRecord

Tick = Callable[[Sequence[PageRecord], Sequence[FailedPage]], None]


@contextmanager
def bar(pages: int, show: bool) -> Iterator[Tick]:
    """Show a bar on stderr inside the block; call what it yields after each page with all that is done so far."""
    from tqdm import tqdm

    with tqdm(total=pages, unit="page", disable=not show, dynamic_ncols=True, desc="probing") as shown:

        def tick(records: Sequence[PageRecord], failed: Sequence[FailedPage]) -> None:
            counts = {"credited": sum(record.credited for record in records)}
            shown.set_postfix(counts | ({"failed": len(failed)} if failed else {}), refresh=False)
            shown.update()

        yield tick
