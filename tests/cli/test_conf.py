"""Every YAML composes, binds, and explains its keys."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headscope.cli import choices, help, line, verbs
from headscope.cli.bind import bind, target
from headscope.resources import find

CONF = find("conf")
NEEDED = {  # a value for each ??? of a root config
    "probe": ["model=reader"],
    "allocate": [],
    "merge": ["parts=[a.json]", "out=b.json"],
    "import": ["path=a.json", "out=b.json"],
    "export": ["scores=a.json", "to=sparsemm", "out=b.json"],
    "diff": ["a=a.json", "b=b.json"],
    "report": ["scores=a.json"],
    "generate": ["model=reader", "image=page.png"],
    "bytes": ["model=llama-3.1-8b"],
    "bytes-calibrate": [],
    "plan": ["model=llama-3.1-8b", "gpu=h200"],
    "sparsify": ["model=reader"],
    "evaluate-ablation": ["model=reader"],
    "evaluate-sweep": ["model=reader"],
    "evaluate-acceptance": ["model=reader"],
    "gate": ["model=reader"],
    "bench-crossing": [],
    "bench-quality-budget": ["model=reader"],
    "bench-probe": [],
    "bench-decode": [],
    "bench-memory": [],
    "bench-kernels": [],
    "bench-linear": [],
}


def files() -> Iterator[Path]:
    return (path.relative_to(CONF) for path in sorted(CONF.rglob("*.yaml")))


def composed(config: str, words: list[str]) -> dict[str, Any]:
    """Compose as a run does, with every reference put in."""
    import hydra
    from omegaconf import OmegaConf

    chosen = line.read(config, words).overrides
    with hydra.initialize_config_dir(str(CONF), version_base=None):
        values = OmegaConf.to_container(hydra.compose(config, overrides=list(chosen)), resolve=True)
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items()}


def without_targets(values: dict[str, Any], verb: Any) -> dict[str, Any]:
    """Check the arguments of each `_target_`, and build nothing."""
    plain = {}
    kinds = inspect.signature(verb).parameters
    for key, value in values.items():
        if isinstance(value, dict) and "_target_" in value:
            arguments = {name: at if at != "???" else "here" for name, at in value.items() if name != "_target_"}
            bind(target(value["_target_"], key), arguments, f"{key}.")
            plain[key] = value if str(kinds[key].annotation).startswith("dict") else object()
        else:
            plain[key] = value
    return plain


@pytest.mark.parametrize("name", verbs.VERBS)
def test_every_root_config_binds_to_its_verb(name: str) -> None:
    config = verbs.config(name)
    function = verbs.function(name)
    bound = bind(function, without_targets(composed(config, NEEDED[config]), function))
    needed = {
        key for key, at in inspect.signature(verbs.function(name)).parameters.items() if at.kind == at.KEYWORD_ONLY
    }
    assert needed - set(bound) <= {"model", "pages"}


@pytest.mark.parametrize("path", [path for path in files() if len(path.parts) == 2], ids=str)
def test_every_choice_composes_and_binds(path: Path) -> None:
    choice = path.name.removesuffix(".yaml")
    users = 0
    for name in verbs.VERBS:
        config, function = verbs.config(name), verbs.function(name)
        for group in choices.groups(CONF / f"{config}.yaml"):
            if choices.folder(group) == path.parent.name:
                words = [word for word in NEEDED[config] if not word.startswith(f"{group}=")] + [f"{group}={choice}"]
                words += ["model.path=some/where"] if choice == "pretrained" else []
                bind(function, without_targets(composed(config, words), function))
                users += 1
    assert users


def test_there_is_a_root_config_for_each_verb_and_no_other() -> None:
    roots = {path.name.removesuffix(".yaml") for path in files() if len(path.parts) == 1}
    assert roots == {verbs.config(name) for name in verbs.VERBS} == set(NEEDED)


@pytest.mark.parametrize("path", list(files()), ids=str)
def test_every_key_has_a_comment(path: Path) -> None:
    text = (CONF / path).read_text()
    if re.match(r"defaults: \[pretrained, _self_\]\npath: \S+\n\Z", text) or path.parts[0] == "experiment":
        return  # a name for a checkpoint; settings that probe.yaml explains
    assert text.startswith("# ")
    assert [key for key, _, comment in help.read(CONF / path) if not comment and not key.endswith("_target_")] == []


@pytest.mark.parametrize("path", [path for path in files() if path.parts[0] == "experiment"], ids=str)
def test_an_experiment_opens_with_the_command_that_runs_it(path: Path) -> None:
    package, command, *_ = (CONF / path).read_text().splitlines()
    assert package == "# @package _global_"
    verb, words = verbs.pop(command.removeprefix("# headscope ").split())
    assert line.read(verbs.config(verb), words)


def test_no_key_of_a_verb_has_the_name_of_a_group_that_it_does_not_use() -> None:
    folders = {path.parts[0] for path in files() if len(path.parts) == 2}
    for name in verbs.VERBS:
        path = CONF / f"{verbs.config(name)}.yaml"
        keys = {key.partition(".")[0] for key, _, _ in help.read(path)}
        assert keys & folders <= {choices.folder(group) for group in choices.groups(path)}


def test_the_papers_experiment_is_the_papers() -> None:
    values = composed("probe", ["model=qwen2-vl-7b", "experiment=sparsemm"])
    assert values["model"]["path"] == "Qwen/Qwen2-VL-7B-Instruct"
    assert values["prompt"] == "Provide all the OCR results of this image."
    assert (values["match"], values["statistic"], values["max_new_tokens"]) == ("paper", "hit", 1024)
    assert (values["ocr"]["granularity"], values["pages"]["limit"]) == ("line", 1000)


@pytest.mark.parametrize("name", verbs.VERBS)
def test_the_examples_of_a_verb_are_command_lines_that_it_takes(name: str, stand: Path) -> None:
    opening = (CONF / f"{verbs.config(name)}.yaml").read_text().split("\ndefaults:")[0]
    examples = re.findall(r"^#   headscope (.+)$", opening, re.MULTILINE)
    assert len(examples) >= 2
    for example in examples:
        verb, words = verbs.pop(example.replace("'", "").replace("~/scans", ".").split())
        assert verb == name
        line.read(verbs.config(verb), words)
