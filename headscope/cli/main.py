"""``headscope VERB key=value ...``: run a verb, and say in one line what a person must mend.

Exit codes: 0 done; 2 a mistake in the command or its files, in one line; 130 Ctrl-C; 1 a fault of headscope's own, with
its traceback. ``HYDRA_FULL_ERROR=1`` shows the traceback of every error.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence


def main(words: Sequence[str] | None = None) -> int:
    """Run a command line and give its exit code."""
    with _quiet_unless_first():
        try:
            run(list(sys.argv[1:] if words is None else words))
            sys.stdout.flush()
        except BrokenPipeError:
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - nobody reads on, as in `headscope ... | head`
        except KeyboardInterrupt as error:
            return _say(f"headscope: {str(error) or 'stopped'}", 130)
        except Exception as error:
            if os.environ.get("HYDRA_FULL_ERROR") == "1" or not mistake(error):
                raise
            return _say(f"headscope: error: {describe(error)}", 2)
    return 0


def run(words: list[str]) -> None:
    """Show help, or run the verb."""
    from headscope.cli import help, verbs

    if not words or words[0] in ("-h", "--help", "help"):
        print(help.overview())
    elif words[0] == "--version":
        from headscope import __version__

        print(f"headscope {__version__}")
    elif words[1:] in (["-h"], ["--help"]) and words[0] not in verbs.VERBS and (family := verbs.family(words[0])):
        print(help.overview(family))
    else:
        verb, rest = verbs.pop(words)
        if "-h" in rest or "--help" in rest:
            print(help.verb(verb, rest))
        else:
            _launch(verb, rest)


def mistake(error: BaseException) -> bool:
    """Whether an error is a person's to mend, and not a fault of headscope's own."""
    if isinstance(error, ImportError):
        return error.name is None  # raised on purpose, to say which package to install
    return isinstance(error, (ValueError, OSError)) or type(error).__module__.partition(".")[0] in (
        "hydra",
        "omegaconf",
    )


def describe(error: BaseException) -> str:
    """Say an error in one line."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(str(error).split()) or type(error).__name__


def _launch(verb: str, rest: list[str]) -> None:
    from headscope.cli import line, verbs
    from headscope.cli.launch import launch

    checked = line.read(verbs.config(verb), rest)
    launch(verb, verbs.function(verb), checked)


def _say(text: str, code: int) -> int:
    print(text, file=sys.stderr)
    return code


def _quiet_unless_first() -> contextlib.AbstractContextManager[object]:
    """Under torchrun only the first process writes to stdout."""
    if os.environ.get("RANK", "0") == "0":
        return contextlib.nullcontext()
    return contextlib.redirect_stdout(open(os.devnull, "w"))  # open until the process ends
