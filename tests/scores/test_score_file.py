"""Score files: readable, exact, the same every time; a wrong one is refused with what was expected and found."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from headscope.scores import FailedPage, HeadScores

GOLDEN = """{
  "format": "headscope.scores/1",
  "model": {
    "id": "tiny/one",
    "layers": 2,
    "heads": 2,
    "kv_heads": 1
  },
  "probe": {
    "statistic": "hit",
    "prompt": "Lies die Größe."
  },
  "software": {},
  "summary": {},
  "values": [
    [0.1, 0.0],
    [3.4028235e+38, 1e-45]
  ],
  "failed": [
    {"name": "bad.png", "reason": "cut off"}
  ]
}
"""


def test_a_score_file_looks_like_this(tmp_path):
    values = [[0.1, -0.0], [3.4028235e38, 1e-45]]
    scores = HeadScores(
        torch.tensor(values),
        kv_heads=1,
        model={"id": "tiny/one"},
        probe={"statistic": "hit", "prompt": "Lies die Größe."},
        failed=(FailedPage("bad.png", "cut off"),),
    )
    scores.save(tmp_path / "scores.json")
    assert (tmp_path / "scores.json").read_text(encoding="utf-8") == GOLDEN


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    arrays.arrays(
        np.float32, (3, 4), elements=st.floats(0, width=32, allow_nan=False, allow_infinity=False, allow_subnormal=True)
    )
)
def test_float32_scores_survive_the_file_bit_for_bit(tmp_path, values):
    HeadScores.from_values(values, kv_heads=2).save(tmp_path / "scores.json")
    loaded = HeadScores.load(tmp_path / "scores.json")
    np.testing.assert_array_equal(loaded.values.numpy(), values + np.float32(0))
    assert loaded.geometry == (3, 4, 2)


def test_all_of_a_probe_survives_the_file(record, scores, tmp_path):
    made = scores([record(place) for place in range(5)], [FailedPage("bad\udcff.png", "cut \N{SNOWMAN} off")])
    made.save(tmp_path / "a.json")
    loaded = HeadScores.load(tmp_path / "a.json")
    loaded.save(tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert torch.equal(loaded.values, made.values)
    assert (loaded.model, loaded.probe, loaded.summary, loaded.failed) == (
        made.model,
        made.probe,
        made.summary,
        made.failed,
    )
    assert [page.to_json() for page in loaded.pages] == [page.to_json() for page in made.pages]


def test_a_score_file_names_no_folder_and_no_clock_time(record, scores, tmp_path):
    scores([record(0)]).save(tmp_path / "deep" / "scores.json")
    text = (tmp_path / "deep" / "scores.json").read_text()
    HeadScores.load(tmp_path / "deep" / "scores.json").save(tmp_path / "again.json")
    assert str(tmp_path) not in text
    assert (tmp_path / "again.json").read_text() == text


def test_pages_are_left_out_where_asked(record, scores, tmp_path):
    scores([record(0)], keep_pages=True).save(tmp_path / "with.json", pages=False)
    scores([record(0)], keep_pages=False).save(tmp_path / "without.json")
    assert (tmp_path / "with.json").read_bytes() == (tmp_path / "without.json").read_bytes()
    with pytest.raises(ValueError, match="`pages=True` needs per-page values"):
        scores([record(0)], keep_pages=False).save(tmp_path / "none.json", pages=True)
    with pytest.raises(ValueError, match="`pages=False`: shard 1/2 needs its per-page values"):
        scores([record(0)], shard="1/2").save(tmp_path / "none.json", pages=False)
    assert not (tmp_path / "none.json").exists()


def test_a_number_that_is_no_number_is_never_written(tmp_path):
    scores = HeadScores(torch.ones(1, 1), 1, summary={"split_half": float("nan")})
    with pytest.raises(ValueError, match="not JSON compliant"):
        scores.save(tmp_path / "scores.json")
    assert not list(tmp_path.iterdir())


def refused(tmp_path, text, match):
    path = tmp_path / "scores.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=f"`{re.escape(str(path))}`: expected {match}"):
        HeadScores.load(path)


@pytest.mark.parametrize("end", range(3, len(GOLDEN) - 2, 29))
def test_a_file_cut_off_anywhere_is_refused(tmp_path, end):
    refused(tmp_path, GOLDEN[:end], "a whole JSON document")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"`.*nowhere.json`: expected a head-score file, found no file"):
        HeadScores.load(tmp_path / "nowhere.json")
    with pytest.raises(ValueError, match="expected a head-score file, found a folder"):
        HeadScores.load(tmp_path)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", r"a head-score file, found an empty one \(0 bytes\)"),
        (" \n", r"a head-score file, found an empty one \(2 bytes\)"),
        (GOLDEN[:300], "a whole JSON document, found .* at line 19 column 3; the file is cut off"),
        ("scores", "a whole JSON document, found expecting value at line 1 column 1"),
        (b"\xff\xfe\x00", "UTF-8 text, found other bytes at offset 0"),
        ("[" * 100_000, "a head-score file, found JSON nested too deeply"),
        ("{}", '"format": "headscope.scores/1", found \'none\'; `headscope import` reads'),
        ("[1]", '"format": "headscope.scores/1", found a list'),
        ('{"0-0": [0.5]}', '"format": "headscope.scores/1", found'),
        ('{"format": "headscope.scores/2"}', "\"format\": .* found 'headscope.scores/2'"),
        ('{"format": "headscope.scores/1"}', "`model` to be a dict, found none"),
        (GOLDEN.replace("0.1", "NaN"), "finite numbers, found NaN"),
        (GOLDEN.replace("0.1", "-Infinity"), "finite numbers, found -Infinity"),
        (GOLDEN.replace('"summary": {}', '"summary": 3'), "`summary` to be a dict, found int"),
        (GOLDEN.replace('"software"', '"probe"'), 'every key once, found "probe" twice'),
        (GOLDEN.replace('"kv_heads": 1', '"kv_heads": 0'), "`model.kv_heads` to be a whole number above 0, found 0"),
        (GOLDEN.replace('"layers": 2,', ""), "`model.layers` to be a whole number above 0, found None"),
        (GOLDEN.replace('"layers": 2', '"layers": 28'), "28 rows of `values`, one a layer, found 2"),
        (GOLDEN.replace("[0.1, 0.0]", "[0.1]"), "2 `values`, one a head, in layer 0, found 1"),
        (GOLDEN.replace("[0.1, 0.0]", "7"), "2 `values`, one a head, in layer 0, found 7"),
    ],
)
def test_what_is_no_score_file_is_refused_with_its_name(tmp_path, text, match):
    refused(tmp_path, text, match)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (GOLDEN.replace("[0.1,", "[-0.1,"), "found -0.1 at layer 0, head 0"),
        (GOLDEN.replace("[0.1,", "[1e400,"), "found inf at layer 0, head 0"),
        (GOLDEN.replace("[0.1, 0.0]", "[0.1, null]"), "`values` must be numbers"),
        (GOLDEN.replace('"kv_heads": 1', '"kv_heads": 4'), "`kv_heads` must divide the 2 heads of a layer, got 4"),
        (GOLDEN.replace('"reason"', '"cause"'), "unexpected keyword argument 'cause'"),
        (GOLDEN.replace('"failed"', '"pages": [{}], "failed"'), r"a page: expected \['name', 'hash', .*found \[\]"),
    ],
)
def test_wrong_content_is_refused_with_the_file(tmp_path, text, match):
    path = tmp_path / "scores.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"`{re.escape(str(path))}`: .*{match}"):
        HeadScores.load(path)


def test_a_file_that_lost_a_page_is_refused(record, scores, tmp_path):
    scores([record(0), record(1)]).save(tmp_path / "scores.json")
    whole = json.loads((tmp_path / "scores.json").read_text())
    refused(tmp_path, json.dumps(whole | {"pages": whole["pages"][:1]}), "2 `pages`, found 1")
    other = record(7, layers=2).to_json()
    refused(tmp_path, json.dumps(whole | {"pages": [whole["pages"][0], other]}), r"page 'page-7.png' to have \(3, 4\)")


def test_loaded_scores_remember_their_file_in_errors(tmp_path):
    HeadScores.from_values(np.ones((32, 32))).save(tmp_path / "other.json")
    with pytest.raises(
        ValueError, match=r"`.*other.json`: expected 28 layers x 28 heads .* found 32 layers x 32 heads"
    ):
        HeadScores.load(tmp_path / "other.json").check((28, 28, 4))
