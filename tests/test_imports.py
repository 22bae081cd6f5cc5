"""Imports point one way, and `import headscope` is light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import headscope

PACKAGE = Path(headscope.__file__).parent
# From the bottom up: a part imports only from itself and from parts before it.
ORDER = [
    "files",
    "resources",
    "software",
    "page",
    "families",
    "scores",
    "budget",
    "kernels",
    "select",
    "cache",
    "fused",
    "attach",
    "runtime",
    "accounting",
    "sparsity",
    "speculate",
    "integrations",
    "report",
    "probing",
    "evaluate",
    "gate",
    "bench",
    "plan",
    "cli",
]
HEAVY = ["torch", "transformers", "hydra", "omegaconf", "easyocr", "rapidocr", "datasets", "matplotlib", "numpy"]


def part(module: str) -> str:
    return module.split(".")[1] if module.startswith("headscope.") else ""


def imports(path: Path) -> set[str]:
    """The parts of headscope that a file imports from, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{name.name}" for name in node.names if node.module == "headscope")]
            found |= {part(name) for name in names}
        elif isinstance(node, ast.Import):
            found |= {part(name.name) for name in node.names}
    return found - {""}


FILES = [path for path in sorted(PACKAGE.rglob("*.py")) if path.parent != PACKAGE or path.stem in ORDER]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_part_imports_only_from_those_before_it(path: Path) -> None:
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    later = {name for name in imports(path) if name in ORDER and ORDER.index(name) > ORDER.index(own)}
    assert own in ORDER and not later, f"{own} must not import from {later}"


def test_importing_headscope_loads_nothing_heavy() -> None:
    code = f"import sys, headscope; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PACKAGE.parent)
    assert done.stdout.strip() == "[]"


def test_the_public_names_are_there() -> None:
    from headscope.scores import HeadScores

    assert headscope.HeadScores is HeadScores
    assert callable(headscope.probe)
    assert headscope.allocate(HeadScores.from_values([[1.0]]), per_head=40).total == 40
    assert headscope.Budget([[40]], 32).per_head == 40
    assert set(dir(headscope)) >= {"Budget", "HeadScores", "allocate", "probe", "__version__"}
    with pytest.raises(AttributeError, match="no attribute 'probee'"):
        headscope.probee  # noqa: B018
