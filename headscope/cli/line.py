"""A command line: what stands after the verb, split, rewritten and checked before Hydra sees it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope.cli import choices, overrides
from headscope.cli.near import hint
from headscope.resources import find

FLAGS = {"-h": 0, "--help": 0, "-m": 0, "--multirun": 0, "--cfg": 1, "-c": 1, "--resolve": 0, "--package": 1, "-p": 1}
FLAGS |= {"--config-dir": 1, "-cd": 1}


@dataclass(frozen=True)
class Line:
    """config: the verb's root config. flags: Hydra's own, with their values. overrides: as Hydra reads them.

    swept: the keys that a multirun sweeps over.
    """

    config: str
    flags: tuple[str, ...]
    overrides: tuple[str, ...]
    multirun: bool
    swept: tuple[str, ...]


def read(config: str, words: Sequence[str]) -> Line:
    """Read what stands after a verb. Raises ValueError or FileNotFoundError for what the verb does not know."""
    flags, typed = separate(words)
    multirun = "-m" in flags or "--multirun" in flags or "hydra.mode=MULTIRUN" in typed
    folders = _folders(flags)
    root = find("conf", f"{config}.yaml")
    groups = choices.groups(root)
    plain = [_filed(overrides.plain(word, multirun), choices.files(root)) for word in typed]
    chosen = [new for old in plain for new in _chosen(old, groups, folders)]
    _check_required(chosen, groups, folders)
    _check_keys(config, chosen, groups, folders)
    swept = [overrides.split(word)[0] for word in chosen if _sweep(word)]
    hydras = tuple(choices.as_hydra(word, groups) for word in chosen)
    return Line(config, tuple(flags), hydras, multirun, tuple(swept))


def separate(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split into flags (each followed by its value) and overrides, in whatever order they stand."""
    flags, typed, rest = [], [], iter(words)
    for word in rest:
        name, equals, _ = word.partition("=")
        if not word.startswith("-"):
            typed.append(word)
        elif name not in FLAGS:
            raise ValueError(f"`{name}` is not a flag{hint(name, FLAGS)}")
        else:
            flags.append(word)
            flags += [value for _ in range(FLAGS[name] if not equals else 0) if (value := next(rest, None)) is not None]
    return flags, typed


def _folders(flags: Sequence[str]) -> list[Path]:
    """The folders with configs: the shipped one, and one given with --config-dir."""
    extra = [after for flag, after in itertools.pairwise(flags) if flag in ("--config-dir", "-cd")]
    return [*map(Path, extra), find("conf")]


def _sweep(override: str) -> bool:
    parsed = overrides.parse(override)
    return parsed is not None and parsed.is_sweep_override()


def _filed(override: str, files: set[str]) -> str:
    """Call a key that stands for a file by the name that the config has for it."""
    key = override.partition("=")[0]
    return f"{key}_file{override.removeprefix(key)}" if key in files else override


def _chosen(override: str, groups: dict[str, Any], folders: Sequence[Path]) -> list[str]:
    """Replace the choice of a group by what it stands for; several choices (a sweep) must all be names."""
    key, _ = overrides.split(override)
    if key not in groups:
        return [override]
    names = choices.choices(key, folders)
    if not _sweep(override):
        value = overrides.text_of(override)
        return [override] if value == "null" and groups[key] is None else choices.choose(key, value, names)
    for value in _values(override):
        if value not in names:
            raise ValueError(f"`{key}` can be swept over {', '.join(names)}, got {value!r}{hint(value, names)}")
    return [override]


def _values(override: str) -> list[str]:
    parsed = overrides.parse(override)
    if not parsed.is_choice_sweep() or not hasattr(parsed._value, "list"):
        return []
    return [getattr(value, "text", str(value)) for value in parsed._value.list]


def _check_required(chosen: Sequence[str], groups: dict[str, Any], folders: Sequence[Path]) -> None:
    given = {overrides.split(word)[0] for word in chosen}
    for group, default in groups.items():
        if default == "???" and group not in given:
            raise choices.required(group, choices.choices(group, folders))


def _check_keys(config: str, chosen: Sequence[str], groups: dict[str, Any], folders: Sequence[Path]) -> None:
    """Refuse a key that the composed config does not have; Hydra would, without the near names."""
    keys = {overrides.split(word)[0] for word in chosen} - set(groups)
    keys = {key for key in keys if not key.startswith(("+", "~", "hydra.", "hydra/"))}
    if keys and (unknown := keys - (known := _known_keys(config, chosen, groups, folders))):
        key = min(unknown)
        raise ValueError(f"`{key}` is not a key of this verb{hint(key, sorted(known))}")


def _known_keys(config: str, chosen: Sequence[str], groups: dict[str, Any], folders: Sequence[Path]) -> set[str]:
    """All dotted keys of the configs that the chosen groups compose to."""
    options = {
        key: _values(word) or [word.partition("=")[2]] for word in chosen if (key := overrides.split(word)[0]) in groups
    }
    rounds = max(map(len, options.values()), default=1)
    picks = [[f"{key}={values[min(at, len(values) - 1)]}" for key, values in options.items()] for at in range(rounds)]
    return {key for pick in picks for key in flat(compose(config, pick, folders))}


def compose(config: str, chosen: Sequence[str], folders: Sequence[Path]) -> dict[str, Any]:
    """Compose a config to a plain dict, its interpolations left as they are."""
    import hydra
    from omegaconf import OmegaConf

    extra = [f"hydra.searchpath=[{','.join(overrides.quoted(f'file://{path.resolve()}') for path in folders[:-1])}]"]
    with hydra.initialize_config_dir(str(folders[-1]), version_base=None):
        groups = choices.groups(find("conf", f"{config}.yaml"))
        given = [choices.as_hydra(word, groups) for word in chosen] + (extra if len(folders) > 1 else [])
        composed = hydra.compose(config, overrides=given)
    return OmegaConf.to_container(composed, resolve=False)  # type: ignore[return-value]


def flat(config: dict[str, Any], prefix: str = "") -> list[str]:
    """Name every key, nested ones with dots."""
    names = []
    for key, value in config.items():
        names.append(f"{prefix}{key}")
        names += flat(value, f"{prefix}{key}.") if isinstance(value, dict) else []
    return names
