"""A model's config: by the name of one that ships, by path, by hub id, as a dict, or as an object of transformers."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from headscope.resources import find

READER = ("reader", "reader-22m")
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


def names() -> list[str]:
    """Name the configs that ship with headscope, sorted."""
    return sorted([*_index(), READER[0]])


def load_config(name: str | Path, *, revision: str | None = None) -> Any:
    """Give a transformers config by the name of one that ships, a folder, a .json or GGUF file, or a name on the hub.

    The hub is asked only for what does not ship; `revision`, a commit or tag there, always asks it. No weights are
    read.

    Raises ValueError (with the near names) or FileNotFoundError.
    """
    path = Path(name).expanduser()
    if revision is None and (shipped := _shipped(str(name))) is not None:
        return from_dict(_read(shipped))
    if str(name) and path.is_dir():
        return from_dict(_read(_inside(path)))
    if path.is_file():
        return from_dict(_read(path))
    if isinstance(name, str) and HUB_ID.fullmatch(name):
        return from_dict(_download(name, revision))
    raise ValueError(f"`model` has no config {str(name)!r}{_near(str(name))}; give {_all()}")


def as_config(config: Any) -> Any:
    """Give a transformers config for whatever stands for one; a config object stays as it is."""
    if isinstance(config, str | Path):
        return load_config(config)
    if isinstance(config, Mapping):
        return from_dict(config)
    if hasattr(config, "get_text_config"):
        return config
    raise ValueError(
        f"`config` must be a transformers config, a dict, a path, or one of {', '.join(names())}; got {config!r}"
    )


def from_dict(values: Mapping[str, Any]) -> Any:
    """Make a transformers config of what a config.json holds; what it leaves out has the default of its kind."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kind = str(values.get("model_type") or "none")
    if kind not in CONFIG_MAPPING:
        near = difflib.get_close_matches(kind, list(CONFIG_MAPPING), 3)
        hint = f"; near: {', '.join(near)}" if near and kind != "none" else ""
        raise ValueError(f"`model_type` must be one that transformers knows, got {kind}{hint}")
    try:
        return CONFIG_MAPPING[kind].from_dict(dict(values))
    except (TypeError, ValueError, AttributeError, KeyError, RuntimeError) as error:
        raise ValueError(f"the config of a {kind} model cannot be read: {' '.join(str(error).split())}") from error


def _index() -> dict[str, list[str]]:
    """Give the names that ship, each with what the hub calls models of that config."""
    return json.loads(find("data", "configs", "names.json").read_text(encoding="utf-8"))


def _shipped(name: str) -> Path | None:
    if name in READER:
        return find("data", "reader", "config.json")
    for known, hub_ids in _index().items():
        if name in (known, *hub_ids):
            return find("data", "configs", f"{known}.json")
    return None


def _inside(folder: Path) -> Path:
    """Give a folder's config.json, else its only GGUF file."""
    if (folder / "config.json").is_file():
        return folder / "config.json"
    files = sorted(folder.glob("*.gguf"))
    if len(files) != 1:
        many = f"{len(files)} GGUF files; give one of them" if files else "none"
        raise FileNotFoundError(f"`model` must be a folder with a config.json, {str(folder)!r} has {many}")
    return files[0]


def _read(path: Path) -> dict[str, Any]:
    if path.suffix == ".gguf":
        return _read_gguf(path)
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, UnicodeDecodeError) as error:
        raise ValueError(f"`model` must have a config in JSON, {path} is none: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"`model` must have a config that is a JSON object, {path} holds a {type(values).__name__}")
    return values


def _read_gguf(path: Path) -> dict[str, Any]:
    from transformers import PreTrainedConfig

    if find_spec("gguf") is None:
        raise ImportError("a GGUF file needs the package gguf; run pip install 'headscope[gguf]'")
    return PreTrainedConfig.get_config_dict(str(path.parent), gguf_file=path.name)[0]


def _download(name: str, revision: str | None) -> dict[str, Any]:
    from huggingface_hub.utils import logging
    from transformers import PreTrainedConfig

    told = logging.get_verbosity()
    logging.set_verbosity_error()  # what the hub's client says of each attempt
    try:
        return PreTrainedConfig.get_config_dict(name, revision=revision)[0]
    except OSError as error:
        raise FileNotFoundError(
            f"`model` {name!r} is no folder here, ships no config, and the Hugging Face hub does not give it "
            f"({str(error).splitlines()[0].rstrip('.')}); check the name, or give {_all()}"
        ) from error
    finally:
        logging.set_verbosity(told)


def _near(name: str) -> str:
    found = difflib.get_close_matches(name, names(), 3)
    return f"; near: {', '.join(found)}" if found else ""


def _all() -> str:
    return f"one of {', '.join(names())}, a folder with a config.json, or a hub id such as Qwen/Qwen3-8B"
