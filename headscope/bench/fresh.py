"""Fresh processes: each piece of work in one of its own, so that nothing of one measurement is left for the next.

They are forked from a server that has imported everything and touched no GPU: a second or two each, not ten.
"""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypeVar

Given = TypeVar("Given")
Run = Callable[[Callable[..., Any], Any], Any]  # work, its argument -> what the work gives
PRELOADED = [
    "headscope.bench.cells",
    "transformers.models.auto.modeling_auto",
    "transformers.models.llama.modeling_llama",
]


def here(work: Callable[[Any], Given], argument: Any) -> Given:
    """Run some work in this process."""
    return work(argument)


def fresh(work: Callable[[Any], Given], argument: Any) -> Given:
    """Run some work in a new process and give what it gives; both must be fit for pickling.

    Raises RuntimeError with the process's traceback, or its exit code where it died.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(theirs, work, argument))
    process.start()
    theirs.close()
    try:
        failed, given = ours.recv()
    except EOFError:
        process.join()
        raise RuntimeError(f"a process that measures died with exit code {process.exitcode}") from None
    except BaseException:
        process.kill()
        raise
    finally:
        process.join()
    if failed:
        raise RuntimeError(f"a process that measures failed:\n{given}")
    return given


def _work(connection: Connection, work: Callable[[Any], Any], argument: Any) -> None:
    try:
        connection.send((False, work(argument)))
    except Exception:
        connection.send((True, traceback.format_exc()))
    finally:
        connection.close()
