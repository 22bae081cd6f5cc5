"""What a person types reaches Hydra's config unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from headscope.cli.overrides import parse, plain, split, text_of

FILES = [
    "/m/epoch=3/x",
    "/d/a(1).jpg",
    "/d/发票.png",
    "/d/é.png",
    "/d/a,b.jpg",
    "/d/my photo.jpg",
    "/d/a@2x.png",
    "/d/100%.png",
    "/d/a#1.png",
    "/d/a&b.png",
    "/d/it's.png",
    'say "hi".png',
    "[scan].png",
    "{x}.png",
    "a:b.png",
    "end\\",
    "back\\'slash",
    "two\nlines",
    "1_1_1",
    "0123",
    "1e3",
    "0x80",
    "TRUE",
    "nan.png",
    " blank ahead",
]


@pytest.mark.parametrize("name", FILES)
def test_any_file_name_arrives_as_it_is(name: str) -> None:
    assert parse(plain(f"pages.path={name}")).value() == name


@given(some.text(min_size=1).filter(lambda text: text.strip() == text and "$" not in text and "\\" not in text))
def test_any_text_is_either_kept_or_means_what_hydra_documents(text: str) -> None:
    value = parse(plain(f"prompt={text}")).value()
    if isinstance(value, str):
        assert value in (text, text[1:-1].replace(f"\\{text[0]}", text[0])) or text.startswith("~")
    else:
        assert value is None or isinstance(value, int | float | list | dict)


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("n=20", 20),
        ("n=0.5", 0.5),
        ("n=true", True),
        ("n=null", None),
        ("n=[a,b]", ["a", "b"]),
        ("n={a: 1}", {"a": 1}),
        ("n='quoted, twice'", "quoted, twice"),
        ('model="/m/epoch=3/x"', "/m/epoch=3/x"),
        (r"model=epoch\=3", "epoch=3"),
        ("n=[é.json,a b.json]", ["é.json", "a b.json"]),
    ],
)
def test_hydras_own_grammar_goes_on_working(typed: str, value: object) -> None:
    assert parse(plain(typed)).value() == value


def test_a_comma_is_text_in_a_run_and_a_sweep_in_a_multirun() -> None:
    assert parse(plain("match=aligned,paper")).value() == "aligned,paper"
    assert parse(plain("match=aligned,paper", multirun=True)).is_sweep_override()


def test_a_sweep_over_file_names_quotes_each() -> None:
    swept = parse(plain("pages.path=/d/a(1).jpg,/d/é.png,/d/b.png", multirun=True))
    assert [getattr(item, "text", item) for item in swept._value.list] == ["/d/a(1).jpg", "/d/é.png", "/d/b.png"]


def test_the_home_folder_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    assert parse(plain("image=~/x.png")).value() == "/home/someone/x.png"
    assert parse(plain("parts=[~/a.json,b.json]")).value() == ["/home/someone/a.json", "b.json"]


def test_a_newline_is_typed_as_a_newline() -> None:
    assert parse(plain("stop=\\n")).value() == "\\n"
    assert parse(plain("stop=\n")).value() == "\n"


def test_hydras_own_keys_are_left_alone() -> None:
    assert plain("hydra.launcher.timeout_min=1_0") == "hydra.launcher.timeout_min=1_0"
    assert plain("hydra/launcher=submitit_local") == "hydra/launcher=submitit_local"
    assert plain("~cache") == "~cache"


@pytest.mark.parametrize("typed", ["reader", "=3", "a b=3", "é=3", "1=2", "out"])
def test_what_is_no_override_is_refused(typed: str) -> None:
    with pytest.raises(ValueError, match="is not of the form key=value"):
        plain(typed)


def test_the_value_starts_at_the_first_equals_sign() -> None:
    assert split("model=/m/epoch=3") == ("model", "/m/epoch=3")
    assert split("++pages.limit=1") == ("++pages.limit", "1")


def test_text_of_a_choice_is_without_quotes() -> None:
    assert text_of("model='a=b'") == "a=b"
    assert text_of("model=reader") == "reader"
    assert text_of("model=2024") == "2024"


def test_home_alone_is_a_folder() -> None:
    assert parse(plain("pages.path=~")).value() == str(Path.home())
