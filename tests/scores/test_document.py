"""Documents: one line a row, and the shortest decimals that read back."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.scores.document import layout, read_json, shortest

PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
NESTED = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=12
)


@settings(max_examples=60, deadline=None)
@given(NESTED)
def test_any_layout_reads_back_as_what_was_laid_out(value):
    assert json.loads(layout(value)) == value


def test_rows_and_objects_of_a_list_take_a_line_each():
    assert layout({"a": [[1, 2], [3]], "b": [{"c": 1}], "d": [1, 2], "e": {}}) == (
        '{\n  "a": [\n    [1, 2],\n    [3]\n  ],\n  "b": [\n    {"c": 1}\n  ],\n  "d": [1, 2],\n  "e": {}\n}'
    )


@settings(max_examples=200, deadline=None)
@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_the_shortest_decimal_reads_back_as_the_same_float32(value):
    assert np.float32(float(repr(shortest(value)))) == np.float32(value)
    assert len(repr(shortest(value))) <= len(repr(value))


def test_a_tenth_is_written_as_a_tenth():
    assert repr(shortest(float(np.float32(0.1)))) == "0.1"


def test_a_byte_order_mark_does_no_harm(tmp_path):
    (tmp_path / "a.json").write_bytes(b'\xef\xbb\xbf{"a": 1}')
    assert read_json(tmp_path / "a.json") == {"a": 1}


def test_a_key_given_twice_is_refused(tmp_path):
    (tmp_path / "a.json").write_text('{"a": 1, "b": 2, "a": 3}')
    with pytest.raises(ValueError, match='expected every key once, found "a" twice'):
        read_json(tmp_path / "a.json")
