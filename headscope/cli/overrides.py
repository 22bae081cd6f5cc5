"""Overrides: ``key=value`` as a person types it, made into what Hydra reads.

Hydra's grammar gives meaning to ``= # ( ) [ & ~ ,`` and refuses other alphabets; file names hold all of them. A value
that Hydra cannot parse is quoted for the person, and so is a top-level comma outside a multirun.
"""

from __future__ import annotations

import os
import re
from typing import Any

KEY = re.compile(r"(\+\+|\+|~)?[A-Za-z_$][\w$-]*([./@:][\w$-]+)*", re.ASCII)


def split(override: str) -> tuple[str, str]:
    """Cut at the first ``=`` into key (its ``+``, ``++`` or ``~`` included) and value."""
    key, equals, value = override.partition("=")
    if not KEY.fullmatch(key) or not (equals or key.startswith("~")):
        raise ValueError(f"`{override}` is not of the form key=value, such as pages.limit=20")
    return key, value


def plain(override: str, multirun: bool = False) -> str:
    """Give one override as Hydra reads it, with the value that the person meant.

    ``~/`` is expanded. Sweeps (a top-level comma) exist in a multirun only. What reads as a number or a switch but is
    not written in its plain form (``1_1_1``, ``1e3``, ``TRUE``) stays text, so that a name is never changed.
    """
    key, value = split(override)
    if key.startswith("~") and "=" not in override:
        return override
    value = os.path.expanduser(value)
    parsed = parse(f"{key}={value}")
    if parsed is None:
        return f"{key}={_requoted(value, multirun)}"
    if parsed.is_sweep_override():
        return f"{key}={value if multirun else quoted(value)}"
    if key.startswith("hydra") or not _altered(parsed.value(), value):
        return f"{key}={value}"
    return f"{key}={quoted(value)}"


def text_of(override: str) -> str:
    """Give the value of an override as text, without the quotes that Hydra asks for."""
    parsed = parse(override)
    value = None if parsed is None or parsed.is_sweep_override() else parsed.value()
    return value if isinstance(value, str) else split(override)[1]


def quoted(text: str) -> str:
    """Quote text so that Hydra gives it back unchanged."""
    from hydra.core.override_parser.types import Quote, QuotedString

    return QuotedString(text, Quote.single).with_quotes()


def parse(override: str) -> Any:
    """Read one override by Hydra's grammar; None where it has an error."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        return OverridesParser.create().parse_override(override)
    except HydraException:
        return None


def _requoted(value: str, multirun: bool) -> str:
    """Quote the whole value, or each item of a list or sweep that needs it."""
    if value.startswith("[") and value.endswith("]") and parse(f"key={(listed := f'[{_each(value[1:-1])}]')}"):
        return listed
    if multirun and "," in value:
        return _each(value)
    return quoted(value)


def _each(values: str) -> str:
    items = [os.path.expanduser(item.strip()) for item in values.split(",")]
    return ",".join(item if parse(f"key={item}") else quoted(item) for item in items)


def _altered(parsed: Any, value: str) -> bool:
    """Whether a number, a switch, or text with blanks around it would come back differently from how it was typed."""
    if isinstance(parsed, str):
        return value != value.strip() and value.strip() == parsed
    if isinstance(parsed, bool):
        return value not in ("true", "false")
    return isinstance(parsed, (int, float)) and str(parsed) != value
