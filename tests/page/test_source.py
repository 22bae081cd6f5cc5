"""Sources of pages: what is found, in which order, under which names, and what is refused."""

from __future__ import annotations

import inspect
import json
import os
from pathlib import Path

import numpy as np
import pytest
import yaml
from hydra.utils import get_object
from PIL import Image

from headscope import resources
from headscope.page import Page
from headscope.page.source import as_pages, bundled, folder, jsonl

CONF = resources.PACKAGE.parent / "conf" / "pages"


def draw(path: Path, kind: str | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 6), "white").save(path, kind)
    return path


def names(pages: list[Page]) -> list[str]:
    return [page.name for page in pages]


def write(path: Path, *lines: object) -> Path:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def test_a_folder_is_listed_by_path_with_its_subfolders_and_without_what_is_hidden(tmp_path):
    for name in ("b.png", "a.JPG", "sub/c.webp", ".hidden.png", ".cache/d.png"):
        draw(tmp_path / name)
    (tmp_path / "notes.txt").write_text("no picture")
    assert names(folder(tmp_path)) == ["a.JPG", "b.png", "sub/c.webp"]


def test_a_picture_without_a_suffix_is_found_by_content(tmp_path):
    draw(tmp_path / "scan", "PNG")
    (tmp_path / "empty").touch()
    assert names(folder(tmp_path)) == ["scan"]


def test_a_bad_picture_stays_in_the_list_to_fail_by_name_later(tmp_path):
    (tmp_path / "broken.png").write_text("text")
    draw(tmp_path / "good.png")
    assert names(folder(tmp_path)) == ["broken.png", "good.png"]


def test_pictures_are_not_read_when_they_are_listed(tmp_path):
    page = folder(draw(tmp_path / "a.png"))[0]
    assert page == Page("a.png", tmp_path / "a.png")


@pytest.mark.parametrize(
    "name", ["a(1).jpg", "发票.png", "é.png", "a,b.jpg", "my photo.jpg", "a@2x.png", "100%.png", "[1].png"]
)
def test_one_file_is_one_page_whatever_it_is_called(tmp_path, name):
    assert names(folder(str(draw(tmp_path / name)))) == [name]


def test_a_glob_names_pages_from_its_fixed_part(tmp_path):
    for name in ("scans/2.png", "scans/1.png", "scans/x.txt.png", "other/3.png"):
        draw(tmp_path / name)
    (tmp_path / "scans" / "x.txt").write_text("no picture")
    assert names(folder(str(tmp_path / "scans" / "*"))) == ["1.png", "2.png", "x.txt.png"]
    assert names(folder(str(tmp_path / "**" / "*.png"))) == [
        "other/3.png",
        "scans/1.png",
        "scans/2.png",
        "scans/x.txt.png",
    ]


def test_a_glob_from_the_folder_one_stands_in(tmp_path, monkeypatch):
    draw(tmp_path / "a.png")
    monkeypatch.chdir(tmp_path)
    assert names(folder("*.png")) == ["a.png"]


def test_the_home_folder_is_expanded(tmp_path, monkeypatch):
    draw(tmp_path / "scans" / "a.png")
    monkeypatch.setenv("HOME", str(tmp_path))
    for path in ("~/scans", "~/scans/a.png", "~/scans/*.png"):
        assert names(folder(path)) == ["a.png"]


def test_linked_folders_are_followed_once(tmp_path):
    draw(tmp_path / "real" / "a.png")
    (tmp_path / "pages").mkdir()
    os.symlink(tmp_path / "real", tmp_path / "pages" / "link")
    os.symlink(tmp_path / "pages", tmp_path / "real" / "loop")
    assert names(folder(tmp_path / "pages")) == ["link/a.png"]


def test_a_limit_takes_the_first_pages(tmp_path):
    for name in ("c.png", "a.png", "b.png"):
        draw(tmp_path / name)
    assert names(folder(tmp_path, limit=2)) == ["a.png", "b.png"]


@pytest.mark.parametrize("limit", [0, -1, 2.0, "3", True])
def test_a_limit_that_is_no_count_is_refused(tmp_path, limit):
    draw(tmp_path / "a.png")
    with pytest.raises(ValueError, match="`limit` must be a whole number of pages, at least 1, or null"):
        folder(tmp_path, limit=limit)


@pytest.mark.parametrize("missing", ["nowhere", "nowhere/*.png"])
def test_nothing_there_is_a_missing_file(tmp_path, missing):
    with pytest.raises(FileNotFoundError, match="no pages in .*nowhere"):
        folder(tmp_path / missing)


def test_a_folder_without_pictures_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("no picture")
    for path in (tmp_path, tmp_path / "*"):
        with pytest.raises(ValueError, match="no pages in .*nothing there is a picture"):
            folder(path)


def test_an_empty_path_is_not_the_folder_one_stands_in():
    with pytest.raises(ValueError, match="`path` must name a folder"):
        folder("")


def test_jsonl_lines_become_pages_with_words(tmp_path):
    file = write(
        tmp_path / "pages.jsonl",
        {
            "image": "sub/a.png",
            "kind": "receipt",
            "text": "Total 42",
            "words": [{"text": "Total", "box": [1, 2, 30, 9]}],
        },
        "",
        {"image": "b.png", "words": [{"text": "tilted", "quad": [[9, 60], [20, 3], [24, 5], [13, 62]]}]},
        {"image": "c.png"},
        {"image": "blank.png", "words": []},
    )
    first, second, third, blank = jsonl(file)
    assert (first.name, first.source, first.text) == ("sub/a.png", tmp_path / "sub/a.png", "Total 42")
    assert [(word.text, word.box) for word in first.words] == [("Total", (1.0, 2.0, 30.0, 9.0))]
    assert second.words[0].quad[0] == (9.0, 60.0) and second.words[0].box == (9.0, 3.0, 24.0, 62.0)
    assert third.words is None and blank.words == ()
    assert names(jsonl(file, limit=1)) == ["sub/a.png"]


def test_a_line_beyond_the_limit_is_not_read(tmp_path):
    assert len(jsonl(write(tmp_path / "p.jsonl", {"image": "a.png"}, "not JSON"), limit=1)) == 1


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 2: Expecting property name"),
        ("[1]", "line 2: a line must be an object with an `image` path"),
        ({"image": 3}, "line 2: a line must be an object with an `image` path"),
        ({"image": "a.png", "words": {}}, "line 2: `words` must be a list"),
        ({"image": "a.png", "text": 3}, "line 2: `text` must be a string"),
        ({"image": "a.png", "words": ["Total"]}, "line 2: a word must have `text` and either `box` or `quad`"),
        (
            {"image": "a.png", "words": [{"text": "x", "box": [1, 2, 3]}]},
            "line 2: `box` of 'x' must be 4 finite numbers",
        ),
        (
            {"image": "a.png", "words": [{"text": "x", "box": "1 2 3 4"}]},
            "line 2: `box` of 'x' must be 4 finite numbers",
        ),
        ({"image": "a.png", "words": [{"text": "x", "quad": [[1, 2], [3, 4]]}]}, "line 2: `quad` of 'x' must be 8"),
        ({"image": "a.png", "words": [{"box": [1, 2, 3, 4]}]}, "line 2: `text` must be a string; got None"),
        (
            '{"image": "a.png", "words": [{"text": "x", "box": [1, 2, 3, NaN]}]}',
            "line 2: `box` of 'x' must be 4 finite",
        ),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, said):
    file = write(tmp_path / "pages.jsonl", {"image": "a.png"}, line)
    with pytest.raises(ValueError, match="^pages.jsonl, " + said):
        jsonl(file)


def test_a_line_that_is_no_text_is_named(tmp_path):
    (tmp_path / "pages.jsonl").write_bytes(b'{"image": "a.png"}\n\xff\xfe\n')
    with pytest.raises(ValueError, match="pages.jsonl, line 2: .*utf-8"):
        jsonl(tmp_path / "pages.jsonl")


def test_an_empty_or_missing_jsonl_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no pages in .*no such JSONL"):
        jsonl(tmp_path / "none.jsonl")
    with pytest.raises(ValueError, match="no pages in .*has no lines"):
        jsonl(write(tmp_path / "empty.jsonl"))


def test_names_are_unique_and_never_absolute(tmp_path):
    taken = {"image": "a.png (2)"}
    file = write(
        tmp_path / "p.jsonl", {"image": "a.png"}, {"image": "a.png"}, taken, {"image": str(tmp_path / "a.png")}
    )
    assert names(jsonl(file)) == ["a.png", "a.png (3)", "a.png (2)", "a.png (4)"]


def bundle(root: Path) -> None:
    draw(root / "data/pages/probe/000.png")
    write(root / "data/pages/probe.jsonl", {"image": "probe/000.png", "words": [{"text": "a", "box": [0, 0, 4, 4]}]})
    write(root / "data/pages/evaluation.jsonl", {"image": "evaluation/000.png"}, {"image": "evaluation/001.png"})


def test_the_bundled_pages_are_found_by_split(tmp_path, monkeypatch):
    bundle(tmp_path)
    monkeypatch.setattr(resources, "find", tmp_path.joinpath)
    assert names(bundled()) == names(as_pages("bundled")) == ["probe/000.png"]
    assert names(bundled("evaluation", limit=1)) == ["evaluation/000.png"]
    assert bundled()[0].source.is_file()
    with pytest.raises(
        ValueError, match="`split` must be one of probe, evaluation; got 'eval'; did you mean `evaluation`"
    ):
        bundled("eval")


def test_as_pages_takes_whatever_a_caller_has(tmp_path):
    file = draw(tmp_path / "scans" / "a.png")
    lines = write(tmp_path / "p.jsonl", {"image": "scans/a.png", "words": []})
    page, array, opened = Page("mine", b""), np.zeros((6, 8, 3), np.uint8), Image.open(file)
    assert as_pages(page) == [page]
    assert names(as_pages([tmp_path / "scans", str(lines), page])) == ["a.png", "scans/a.png", "mine"]
    assert as_pages(array)[0].source is array
    assert names(as_pages([opened, file.read_bytes(), array, opened])) == [
        "a.png",
        "picture",
        "picture (2)",
        "a.png (2)",
    ]
    assert names(as_pages(one for one in [file])) == ["a.png"]


@pytest.mark.parametrize("nothing", [[], ()])
def test_as_pages_refuses_nothing(nothing):
    with pytest.raises(ValueError, match="no pages in `pages`: it is empty"):
        as_pages(nothing)


@pytest.mark.parametrize("other", [None, 3, {"image": "a.png"}, np.float32(1)])
def test_as_pages_refuses_what_is_no_page(other):
    with pytest.raises(ValueError, match="`pages` must be a path, a Page, a picture"):
        as_pages(other)


@pytest.mark.parametrize("file", sorted(CONF.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_yaml_names_a_source_and_only_its_arguments(file):
    settings = yaml.safe_load(file.read_text())
    accepted = inspect.signature(get_object(settings.pop("_target_"))).parameters
    assert set(settings) <= set(accepted) and "limit" in settings
    assert {name for name, given in accepted.items() if given.default is given.empty} <= set(settings)


@pytest.mark.parametrize("file", sorted(CONF.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_key_of_every_yaml_has_its_comment(file):
    keys = [line for line in file.read_text().splitlines() if not line.startswith(("#", "_target_"))]
    assert [line for line in keys if " # " not in line and "columns: #" not in line] == []
