"""Help: written from the comments of the config files, so that it never says what they do not."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from headscope.cli import choices, verbs
from headscope.resources import find

VALUE, COMMENT = r"(?: +(?P<value>[^#]*[^# ]))?", r"(?:#+ *(?P<comment>.*))?"
ENTRY = re.compile(rf"(?P<indent> *)(?P<item>- )?(?:[\w/.-]+@)?(?P<key>[\w.-]+):{VALUE} *{COMMENT}")
SWEEPS = "-m, --multirun: sweep over values with commas. --cfg job: print the settings, run nothing."


def overview(family: str = "") -> str:
    """List the verbs, with the first line of each one's config."""
    listed = [verb for verb in verbs.VERBS if verb.startswith(family)]
    width = max(map(len, listed))
    lines = [f"  {verb:{width}}  {_opening(verb)[0]}" for verb in listed]
    start = "headscope finds the attention heads of a multimodal model that read the picture.\n\n" if not family else ""
    return (
        f"{start}usage: headscope VERB key=value ...\n\n"
        + "\n".join(lines)
        + ("\n\n`headscope VERB --help` explains a verb's keys; `headscope --version` gives the version.")
    )


def verb(name: str, typed: Sequence[str] = ()) -> str:
    """Explain one verb: what it does, its keys with their defaults, what each group offers, examples.

    typed: choices given on the command line, such as ``pages=folder``; their own keys are explained too.
    """
    path = _path(name)
    groups = choices.groups(path)
    first, *examples = _opening(name)
    lines = [f"usage: headscope {name} key=value ...", "", first, "", *_keys(read(path)), ""]
    for group, choice in (word.split("=", 1) for word in typed if "=" in word):
        if group in groups and choice in choices.choices(group, [path.parent]):
            lines += [
                f"keys of {group}={choice}:",
                *_keys(read(path.parent / choices.folder(group) / f"{choice}.yaml"), f"{group}."),
                "",
            ]
    if groups:
        lines += [f"choices (`headscope {name} {next(iter(groups))}=NAME --help` explains the keys of one):"]
        lines += [*(_offered(group, path.parent) for group in groups), ""]
    return "\n".join([*lines, "examples:", *examples, "", SWEEPS])


def _keys(entries: Iterable[tuple[str, str, str]], prefix: str = "") -> list[str]:
    listed = [(f"{prefix}{key}={value}", comment) for key, value, comment in entries if key != "_target_"]
    width = max((len(entry) for entry, _ in listed), default=0)
    return [f"  {entry:{width}}  {comment}".rstrip() for entry, comment in listed]


def read(path: Path) -> Iterator[tuple[str, str, str]]:
    """Yield (dotted key, default, comment) of each entry of a config file, groups first as they stand there."""
    parents: list[tuple[int, str]] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        found = ENTRY.fullmatch(line)
        if found is None or found["key"] == "defaults":
            continue
        depth = len(found["indent"])
        parents = [(at, key) for at, key in parents if at < depth] if not found["item"] else []
        key = ".".join([*(key for _, key in parents), found["key"]])
        if found["value"] is None:
            parents.append((depth, found["key"]))
        else:
            yield key, found["value"], found["comment"] or ""


def _offered(group: str, folder: Path) -> str:
    names = ", ".join(choices.choices(group, [folder]))
    return f"  {group}: {names}" + (f"; or {choices.ALSO[group]}" if group in choices.ALSO else "")


def _opening(name: str) -> list[str]:
    """Give the comment that opens a verb's config: its first line, then its examples."""
    lines = _path(name).read_text(encoding="utf-8").splitlines()
    comments = [line.removeprefix("#").removeprefix(" ").rstrip() for line in lines[: _end(lines)]]
    return [line for line in comments if line]


def _end(lines: list[str]) -> int:
    return next((at for at, line in enumerate(lines) if not line.startswith("#")), len(lines))


def _path(name: str) -> Path:
    return find("conf", f"{verbs.config(name)}.yaml")
