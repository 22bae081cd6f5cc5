"""A mistake is one line and exit code 2; a fault of headscope's own keeps its traceback."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headscope.cli import main, verbs
from tests.cli.command import Outcome

Run = Callable[..., Outcome]


@pytest.fixture
def verb(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., None]], None]:
    """Let ``headscope diff`` do something else."""

    def replace(function: Callable[..., None]) -> None:
        monkeypatch.setattr(verbs, "function", lambda name: function)

    return replace


def raising(error: BaseException) -> Callable[..., None]:
    def work(place: Any, /, *, a: str, b: str, k: Any, moves: int) -> None:
        raise error

    return work


def test_help_names_the_verbs_that_exist_and_no_other(run: Run) -> None:
    shown = run("--help")
    listed = [text[2:].split("  ")[0] for text in shown.out.splitlines() if text.startswith("  ")]
    assert shown.code == 0
    assert listed == list(verbs.VERBS)
    assert run().out == shown.out


@pytest.mark.parametrize("name", verbs.VERBS)
def test_every_verb_explains_its_keys_and_gives_examples(run: Run, name: str) -> None:
    shown = run(*name.split(), "--help")
    assert shown.code == 0
    assert shown.out.startswith(f"usage: headscope {name} key=value ...\n")
    assert f"  headscope {name} " in shown.out or f"  headscope {name}\n" in shown.out
    assert callable(verbs.function(name))


def test_the_probes_help_gives_keys_comments_choices_and_three_examples(run: Run) -> None:
    shown = run("probe", "--help").out
    assert "  answer=generate    " in shown
    assert "true: write an HTML page" in shown
    assert "  ocr: easyocr, rapidocr, words\n" in shown
    assert shown.count("\n  headscope probe ") == 3
    assert len(shown.splitlines()) < 50


def test_help_explains_the_keys_of_a_choice(run: Run) -> None:
    assert "  pages.path=???  " in run("probe", "pages=folder", "--help").out


def test_the_verbs_of_a_family_are_listed(run: Run) -> None:
    assert "  bench probe  " in run("bench", "--help").out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["prob"], "`prob` is not a verb; near: probe"),
        (["evaluate"], "`evaluate` needs a second word; there are: evaluate ablation"),
        (["evaluate", "ablatoin"], "`evaluate` needs a second word"),
        (["diff", "a=x"], "`b` is required; give b=..."),
        (["diff", "a=", "b=y"], "`a` must be a path, got nothing"),
        (["diff", "a=x", "b=y", "moves=3.5"], "`moves` must be a whole number, got 3.5"),
        (["diff", "a=x", "b=y", "k=nan"], "`k` must be a whole number or a list such as [a,b] or null, got nan"),
        (["diff", "a=x", "b=y", "+more=1"], "`more` is not a key here; near: moves"),
        (["diff", "a=x", "b=${nowhere}"], "Interpolation key 'nowhere' not found"),
        (["diff", "a=range(1,3)", "b=y"], "range(1,3)"),
        (["diff", "a=x.json", "b=y.json"], "x.json"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(run: Run, stand: Path, words: list[str], message: str) -> None:
    shown = run(*words)
    assert shown.code == 2
    assert shown.err.startswith("headscope: error: ")
    assert message in shown.err
    assert shown.err.count("\n") == 1
    assert shown.out == ""
    assert list(stand.iterdir()) == []


def test_a_full_disk_names_the_file(run: Run, verb: Any) -> None:
    verb(raising(OSError(errno.ENOSPC, "No space left on device", "scores/x.json")))
    assert run("diff", "a=x", "b=y").err == "headscope: error: scores/x.json: No space left on device\n"


def test_a_full_disk_under_the_output_says_so(run: Run, verb: Any) -> None:
    verb(raising(OSError(errno.ENOSPC, "No space left on device")))
    assert run("diff", "a=x", "b=y").err == "headscope: error: No space left on device\n"


def test_a_missing_package_is_a_mistake_and_a_broken_import_is_not(run: Run, verb: Any) -> None:
    verb(raising(ModuleNotFoundError("`ocr=rapidocr` needs the package rapidocr")))
    assert run("diff", "a=x", "b=y").code == 2
    verb(raising(ModuleNotFoundError("No module named 'x'", name="x")))
    with pytest.raises(ModuleNotFoundError):
        run("diff", "a=x", "b=y")


def test_messages_of_several_lines_become_one(run: Run, verb: Any) -> None:
    verb(raising(ValueError("first\n   second")))
    assert run("diff", "a=x", "b=y").err == "headscope: error: first second\n"


def test_a_fault_of_headscopes_own_keeps_its_traceback(run: Run, verb: Any) -> None:
    verb(raising(KeyError("inside")))
    with pytest.raises(KeyError, match="inside"):
        run("diff", "a=x", "b=y")


def test_full_errors_on_request(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    with pytest.raises(ValueError, match="`prob` is not a verb"):
        run("prob")


def test_ctrl_c_is_one_line_and_exit_code_130(run: Run, verb: Any) -> None:
    verb(raising(KeyboardInterrupt()))
    shown = run("diff", "a=x", "b=y")
    assert (shown.code, shown.err) == (130, "headscope: stopped\n")


def test_hydra_is_left_as_it_was_found(run: Run, verb: Any) -> None:
    before = list(sys.argv)
    verb(raising(ValueError("x")))
    run("diff", "a=x", "b=y")
    assert sys.argv == before
    assert "HYDRA_FULL_ERROR" not in os.environ


def test_only_the_first_process_of_a_torchrun_prints(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    assert run("--help").out == ""
    monkeypatch.setenv("RANK", "0")
    assert run("--help").out != ""


def test_the_version(run: Run) -> None:
    from headscope import __version__

    assert run("--version").out == f"headscope {__version__}\n"


def test_the_module_is_the_command(stand: Path) -> None:
    command = [sys.executable, "-m", "headscope", "diff", "a=发票(1).json", "b=x"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=stand)
    assert done.returncode == 2
    assert done.stderr.startswith("headscope: error: ")
    assert "发票(1).json" in done.stderr


def test_a_closed_pipe_is_no_error(stand: Path) -> None:
    line = f"{sys.executable} -m headscope --help | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", line], capture_output=True, text=True, cwd=stand)
    assert done.stderr == ""


def test_help_imports_nothing_heavy() -> None:
    program = "import sys; from headscope.cli.main import main; main(['probe', '--help']); print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = done.stdout.splitlines()[-1]
    assert "'torch'" not in loaded
    assert "'hydra'" not in loaded
    assert "'transformers'" not in loaded


def test_describe_says_at_least_what_kind_of_error_it_was() -> None:
    assert main.describe(ValueError()) == "ValueError"
