"""Choices: the groups of a verb's config (`model`, `pages`, `ocr`, ...), and what may be chosen in each."""

from __future__ import annotations

import glob
import re
from collections.abc import Container, Sequence
from pathlib import Path

from headscope.cli.near import near
from headscope.cli.overrides import quoted
from headscope.resources import find

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
ALSO = {
    "model": "a hub id such as Qwen/Qwen2-VL-7B-Instruct, or a folder with a checkpoint",
    "pages": "a folder, an image, a glob or a .jsonl file",
}
FOLDERS = {"rule": "budget"}  # groups whose folder in conf/ has another name


def groups(config: Path) -> dict[str, str | None]:
    """Give the groups that a root config names, each with its default; ``???`` where the person must choose."""
    from omegaconf import OmegaConf

    defaults = OmegaConf.to_container(OmegaConf.load(config)).get("defaults", [])  # type: ignore[union-attr]
    entries = [item for entry in defaults if isinstance(entry, dict) for item in entry.items()]
    return {group.rpartition("@")[2]: choice for group, choice in entries}


def folder(group: str) -> str:
    """Name the folder with the files of a group."""
    return FOLDERS.get(group, group)


def as_hydra(override: str, groups: Container[str]) -> str:
    """Choose in one of the groups by the name that Hydra has for it: ``rule=uniform`` is ``budget@rule=uniform``."""
    key = override.partition("=")[0]
    return f"{FOLDERS[key]}@{override}" if key in FOLDERS and key in groups else override


def files(config: Path) -> set[str]:
    """Name the keys of a root config that stand for a file, without their ``_file``: `budget=` means `budget_file=`.

    To Hydra a key with the name of a folder of configs is a choice in it, also for a verb that has no such choice.
    """
    from omegaconf import OmegaConf

    keys = map(str, OmegaConf.load(config))
    return {key.removesuffix("_file") for key in keys if key.endswith("_file")}


def choices(group: str, folders: Sequence[Path]) -> list[str]:
    """Name the files of a group, sorted."""
    files = [path for place in folders for path in (place / folder(group)).glob("*.yaml")]
    return sorted({path.name.removesuffix(".yaml") for path in files})


def choose(group: str, value: str, names: Sequence[str]) -> list[str]:
    """Give the overrides that choose ``value`` in a group.

    ``model`` takes a hub id, a folder, or what results call a model beside its names, ``pages`` a folder, an image, a
    glob or a ``.jsonl`` file.
    Raises ValueError or FileNotFoundError, with the near names, for anything else.
    """
    if value in names:
        return [f"{group}={value}"]
    if group == "model" and (known := _called(value, names)):
        return [f"model={known}"]
    if group == "model" and value and (Path(value).exists() or HUB_ID.fullmatch(value)):
        return ["model=pretrained", f"model.path={quoted(value)}"]
    if group == "pages" and value and (Path(value).exists() or glob.glob(value, recursive=True)):
        kind = "jsonl" if value.endswith(".jsonl") and Path(value).is_file() else "folder"
        return [f"pages={kind}", f"pages.path={quoted(value)}"]
    if group in ALSO and ("/" in value or value.startswith((".", "~")) or glob.has_magic(value)):
        raise FileNotFoundError(f"`{group}`: nothing found at {value}; give {_all(group, names)}")
    raise ValueError(f"`{group}` has no choice {value!r}{_near(value, names)}; give {_all(group, names)}")


def required(group: str, names: Sequence[str]) -> ValueError:
    """Say that the person must choose."""
    return ValueError(f"`{group}` is required: give {group}=..., {_all(group, names)}")


def _called(value: str, names: Sequence[str]) -> str | None:
    """Find the shipped model that results call by this name, such as reader-22m."""
    from omegaconf import OmegaConf

    for path in sorted(find("conf", "model").glob("*.yaml")):
        if path.stem in names and value and OmegaConf.select(OmegaConf.load(path), "name") == value:
            return path.stem
    return None


def _near(value: str, names: Sequence[str]) -> str:
    found = near(value, names)
    return f"; near: {', '.join(found)}" if found else ""


def _all(group: str, names: Sequence[str]) -> str:
    named = f"one of {', '.join(names)}"
    return f"{named}, or {ALSO[group]}" if group in ALSO else named
