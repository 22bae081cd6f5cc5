"""Binding turns plain values into what annotations ask for, or names the key."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as some

from headscope.cli.bind import bind, build, convert

if TYPE_CHECKING:
    from nowhere import Unknown


@dataclass(frozen=True)
class Crop:
    width: int
    unit: Literal["px", "mm"] = "px"


def verb(
    place: str,
    /,
    *,
    budget: int,
    ratio: float = 0.1,
    name: str = "x",
    out: Path | None = None,
    how: Literal["hit", "mass"] = "hit",
    fast: bool = False,
    crop: Crop | None = None,
    sizes: list[int] | None = None,
    pair: tuple[str, ...] = (),
    columns: dict[str, str] | None = None,
    anything: Unknown | None = None,
) -> None: ...


@pytest.mark.parametrize("typed", [1000, 1e3, "1e3", "1_000", "1000", "1000.0"])
def test_a_whole_number_may_be_written_in_any_way(typed: Any) -> None:
    bound = bind(verb, {"budget": typed})["budget"]
    assert bound == 1000
    assert type(bound) is int


@pytest.mark.parametrize("typed", [64.5, "64.5", "0x80", "many", True, None, [64], "1e400", math.inf])
def test_no_other_value_passes_for_a_whole_number(typed: Any) -> None:
    with pytest.raises(ValueError, match="`budget` must be a whole number, got"):
        bind(verb, {"budget": typed})


@pytest.mark.parametrize("key", ["budget", "ratio", "name", "out", "how", "fast", "crop", "sizes", "columns"])
def test_nothing_at_all_is_refused_with_the_name_of_its_key(key: str) -> None:
    with pytest.raises(ValueError, match=f"`{key}` must be .*, got nothing"):
        bind(verb, {"budget": 1, key: ""})


@pytest.mark.parametrize("key", ["budget", "ratio", "name"])
def test_nan_is_refused_with_the_name_of_its_key(key: str) -> None:
    with pytest.raises(ValueError, match=f"`{key}` must be .*, got nan"):
        bind(verb, {"budget": 1, key: math.nan})


def test_nan_typed_as_text_is_no_number() -> None:
    with pytest.raises(ValueError, match="`ratio` must be a number, got 'NaN'"):
        bind(verb, {"budget": 1, "ratio": "NaN"})


@pytest.mark.parametrize(("typed", "meant"), [(True, True), ("true", True), ("FALSE", False)])
def test_switches(typed: Any, meant: bool) -> None:
    assert bind(verb, {"budget": 1, "fast": typed})["fast"] is meant


@pytest.mark.parametrize("typed", [1, 0, "yes", None])
def test_a_switch_is_true_or_false_and_nothing_else(typed: Any) -> None:
    with pytest.raises(ValueError, match="`fast` must be true or false, got"):
        bind(verb, {"budget": 1, "fast": typed})


@pytest.mark.parametrize(("typed", "meant"), [(2024, "2024"), ("1_1_1", "1_1_1"), (True, "true"), (0.5, "0.5")])
def test_a_name_that_looks_like_a_number_stays_a_name(typed: Any, meant: str) -> None:
    assert bind(verb, {"budget": 1, "name": typed})["name"] == meant


def test_text_keeps_its_backslashes() -> None:
    assert bind(verb, {"budget": 1, "name": r"a\nb"})["name"] == r"a\nb"


def test_text_must_be_given() -> None:
    with pytest.raises(ValueError, match="`name` must be text, got None"):
        bind(verb, {"budget": 1, "name": None})


def test_a_choice_lists_what_there_is() -> None:
    with pytest.raises(ValueError, match="`how` must be one of hit, mass, got 'hti'"):
        bind(verb, {"budget": 1, "how": "hti"})


def test_a_typing_error_in_a_key_gets_the_near_ones() -> None:
    with pytest.raises(ValueError, match="`budgt` is not a key here; near: budget"):
        bind(verb, {"budgt": 64})


def test_a_key_that_must_be_given() -> None:
    with pytest.raises(ValueError, match="`budget` is required; give budget="):
        bind(verb, {})


def test_paths_expand_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    assert bind(verb, {"budget": 1, "out": "~/x.json"})["out"] == Path("/home/someone/x.json")


def test_nested_keys_are_named_in_full() -> None:
    assert bind(verb, {"budget": 1, "crop": {"width": "3"}})["crop"] == Crop(3)
    with pytest.raises(ValueError, match="`crop.unit` must be one of px, mm"):
        bind(verb, {"budget": 1, "crop": {"width": 3, "unit": "inch"}})
    with pytest.raises(ValueError, match="`crop.widht` is not a key here; near: width"):
        bind(verb, {"budget": 1, "crop": {"widht": 3}})


def test_lists_and_mappings_convert_what_they_hold() -> None:
    bound = bind(verb, {"budget": 1, "sizes": ["14", 7.0], "pair": ["a", 1], "columns": {"text": 3}})
    assert bound == {"budget": 1, "sizes": [14, 7], "pair": ("a", "1"), "columns": {"text": "3"}}
    with pytest.raises(ValueError, match=r"`sizes\[1\]` must be a whole number"):
        bind(verb, {"budget": 1, "sizes": [1, "x"]})
    with pytest.raises(ValueError, match=r"`sizes` must be a list such as \[a,b\]"):
        bind(verb, {"budget": 1, "sizes": 3})


def test_a_union_takes_the_kind_that_the_value_has() -> None:
    assert convert([1, 2], int | list[int] | None, "k") == [1, 2]
    assert convert("40", int | list[int] | None, "k") == 40
    assert convert("a*.json", list[Path] | str, "parts") == "a*.json"
    assert convert(None, int | list[int] | None, "k") is None
    with pytest.raises(ValueError, match=r"`k` must be a whole number or a list such as \[a,b\] or null, got 'x'"):
        convert("x", int | list[int] | None, "k")


def test_an_annotation_that_only_a_type_checker_knows_takes_anything() -> None:
    assert bind(verb, {"budget": 1, "anything": {"a": 1}})["anything"] == {"a": 1}


def test_a_node_with_a_target_is_built_with_typed_arguments() -> None:
    node = {"_target_": f"{__name__}.Crop", "width": "1e1"}
    assert build(node, "crop") == Crop(10)
    assert bind(verb, {"budget": 1, "anything": node})["anything"] == Crop(10)
    with pytest.raises(ValueError, match="`crop.width` must be a whole number"):
        build(node | {"width": "wide"}, "crop")


def test_a_target_that_is_nowhere() -> None:
    with pytest.raises(
        ValueError, match="`ocr._target_` must be the dotted name of a function, got 'headscope.nowhere.x'"
    ):
        build({"_target_": "headscope.nowhere.x"}, "ocr")


def test_sequences_are_lists() -> None:
    assert convert([1], Sequence[int], "k") == [1]


@given(some.integers(-(10**15), 10**15))
def test_every_whole_number_survives_as_text_and_as_a_number(value: int) -> None:
    assert convert(str(value), int, "n") == convert(value, int, "n") == convert(float(value), int, "n") == value


@given(some.text(min_size=1))
def test_text_is_never_changed(value: str) -> None:
    assert convert(value, str, "name") == value
