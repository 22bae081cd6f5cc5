"""Binding: plain values from a config -> the typed arguments of a function, by its annotations.

Numbers typed on the command line may come as text (``1e3``, ``1_000``), and become what the function asks for, or an
error that names the key. Text stays as it was typed: a backslash is a backslash, and ``\\n`` is two characters; a shell
writes a real line break as ``prompt=$'first\\nsecond'``.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import math
import pkgutil
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from headscope.cli.near import hint


def bind(function: Callable[..., Any], config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Give the keyword arguments of a function or dataclass, each converted to its annotation.

    prefix: what stands before the keys in messages (``"pages."``). Positional-only parameters are left to the caller.
    Raises ValueError for an unknown key, a missing one, or a value of another kind.
    """
    parameters = {
        name: parameter
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }
    for key in config:
        if key not in parameters:
            raise ValueError(f"`{prefix}{key}` is not a key here{hint(key, parameters)}")
    for name, parameter in parameters.items():
        if parameter.default is parameter.empty and name not in config:
            raise ValueError(f"`{prefix}{name}` is required; give {prefix}{name}=...")
    kinds = _kinds(function, parameters)
    return {key: convert(value, kinds[key], prefix + key) for key, value in config.items()}


def build(node: Mapping[str, Any], key: str) -> Any:
    """Call what ``_target_`` names, with the node's other keys as its arguments."""
    if "_target_" not in node:
        given = ", ".join(node) or "nothing"
        raise ValueError(f"`{key}` needs a `_target_`, the dotted name of a function, got {given}")
    arguments = {name: value for name, value in node.items() if name != "_target_"}
    function = target(node["_target_"], key)
    return function(**bind(function, arguments, f"{key}."))


def target(name: str, key: str) -> Callable[..., Any]:
    """Import the function or class that a dotted name means."""
    try:
        return pkgutil.resolve_name(name)
    except (AttributeError, ModuleNotFoundError, ValueError) as error:
        raise ValueError(f"`{key}._target_` must be the dotted name of a function, got {name!r}: {error}") from error


def convert(value: Any, kind: Any, key: str) -> Any:
    """Give the value as its annotation asks, or raise ValueError that names the key."""
    if value == "" or (isinstance(value, float) and math.isnan(value)):
        raise ValueError(f"`{key}` must be {_words(kind)}, got {'nothing' if value == '' else 'nan'}")
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _one_of(value, arguments, kind, key)
    if origin is Literal:
        return _choice(value, arguments, key)
    if kind in (dict, Mapping) or origin in (dict, Mapping):
        return _mapping(value, arguments, kind, key)
    if isinstance(value, Mapping):
        return _node(value, kind, key)
    if kind in (list, tuple) or origin in (list, tuple, Sequence):
        return _items(value, kind, origin or kind, arguments, key)
    if kind in SCALARS:
        return SCALARS[kind](value, key)
    if kind is Any or not isinstance(kind, type) or isinstance(value, kind):
        return value
    raise _wrong(value, kind, key)


def listed(values: Any) -> Any:
    """Take one value, as a job of a multirun has it, for a list of one; None stays None."""
    return values if isinstance(values, list | None) else [values]


def _kinds(function: Callable[..., Any], parameters: Mapping[str, inspect.Parameter]) -> dict[str, Any]:
    """Evaluate each annotation by itself: one that only a type checker can import counts as Any."""
    scope = vars(importlib.import_module(function.__module__))
    kinds: dict[str, Any] = {}
    for name, parameter in parameters.items():
        kind = parameter.annotation
        try:
            kinds[name] = eval(kind, dict(scope)) if isinstance(kind, str) else kind
        except NameError:
            kinds[name] = Any
        if kinds[name] is parameter.empty:
            kinds[name] = Any
    return kinds


def _one_of(value: Any, kinds: tuple[Any, ...], kind: Any, key: str) -> Any:
    """Convert to a union: null, the kind that the value already has, else the first that takes it."""
    if value is None and types.NoneType in kinds:
        return None
    options = [option for option in kinds if option is not types.NoneType]
    options.sort(key=lambda option: type(value) is not option)
    for option in options:
        try:
            return convert(value, option, key)
        except ValueError:
            if len(options) == 1:
                raise
    raise _wrong(value, kind, key)


def _choice(value: Any, options: tuple[Any, ...], key: str) -> Any:
    for option in options:
        if value == option and type(value) is type(option):
            return option
    raise ValueError(f"`{key}` must be one of {', '.join(map(str, options))}, got {value!r}")


def _mapping(value: Any, arguments: tuple[Any, ...], kind: Any, key: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _wrong(value, kind, key)
    if not arguments:
        return dict(value)
    return {str(name): convert(item, arguments[1], f"{key}.{name}") for name, item in value.items()}


def _node(value: Mapping[str, Any], kind: Any, key: str) -> Any:
    if "_target_" in value:
        return build(value, key)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return kind(**bind(kind, value, f"{key}."))
    if kind is Any:
        return dict(value)
    raise _wrong(dict(value), kind, key)


def _items(value: Any, kind: Any, origin: Any, arguments: tuple[Any, ...], key: str) -> Any:
    if not isinstance(value, (list, tuple)):
        raise _wrong(value, kind, key)
    inner = [argument for argument in arguments if argument is not ...] or [Any]
    if len(inner) > 1 and len(inner) != len(value):
        raise ValueError(f"`{key}` must be {len(inner)} values, got {len(value)}")
    kinds = inner if len(inner) > 1 else inner * len(value)
    items = [convert(item, each, f"{key}[{at}]") for at, (item, each) in enumerate(zip(value, kinds, strict=True))]
    return tuple(items) if origin is tuple else items


def _bool(value: Any, key: str) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise _wrong(value, bool, key)


def _int(value: Any, key: str) -> int:
    number = _number(value)
    if number is None or number != int(number):
        raise _wrong(value, int, key)
    return int(number)


def _float(value: Any, key: str) -> float:
    number = _number(value)
    if number is None:
        raise _wrong(value, float, key)
    return float(number)


def _number(value: Any) -> int | float | None:
    """Read a finite number, also one typed as text."""
    if isinstance(value, bool):
        return None
    for parse in (int, float) if isinstance(value, str) else (lambda number: number,):
        try:
            if math.isfinite(number := parse(value)):
                return number
        except (TypeError, ValueError, OverflowError):
            continue
    return None


def _str(value: Any, key: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int, float)):
        return str(value)
    raise _wrong(value, str, key)


def _path(value: Any, key: str) -> Path:
    return Path(_str(value, key)).expanduser()


SCALARS: dict[Any, Callable[[Any, str], Any]] = {bool: _bool, int: _int, float: _float, str: _str, Path: _path}
WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    Path: "a path",
    dict: "keys with values",
    list: "a list such as [a,b]",
    tuple: "a list such as [a,b]",
    types.NoneType: "null",
}


def _words(kind: Any) -> str:
    """Say an annotation as a person would."""
    if get_origin(kind) in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_words(option) for option in get_args(kind)))
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    return WORDS.get(get_origin(kind) or kind, "given")


def _wrong(value: Any, kind: Any, key: str) -> ValueError:
    return ValueError(f"`{key}` must be {_words(kind)}, got {value!r}")
