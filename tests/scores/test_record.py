"""Page records: exact through JSON, refused when misshapen."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from headscope.scores import PageRecord

ANY = arrays.arrays(np.float64, (2, 3), elements=st.floats(0, 1e300, allow_subnormal=True))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ANY, ANY)
def test_a_record_survives_json_bit_for_bit(record, hit, mass):
    counts = record(3, layers=2, heads=3)
    fields = counts.to_json() | {"hit": hit, "mass": mass}
    before = PageRecord(**fields)
    after = PageRecord.from_json(json.loads(json.dumps(before.to_json())))
    assert after.to_json() == before.to_json()
    assert torch.equal(after.hit, torch.from_numpy(hit))
    assert torch.equal(after.mass, torch.from_numpy(mass))
    assert after.first_key.dtype == torch.int64


@pytest.mark.parametrize("bad", [[[float("nan")]], [[-1.0]], [1.0], [[float("inf")]]])
def test_values_that_are_no_sums_of_hits_are_refused_with_their_page(record, bad):
    with pytest.raises(ValueError, match=r"page 'page-1.png': `hit` must be finite, non-negative numbers"):
        PageRecord(**record(1).to_json() | {"hit": bad})
    with pytest.raises(ValueError, match=r"page 'page-1.png': `mass` must be numbers"):
        PageRecord(**record(1).to_json() | {"mass": "much"})


@pytest.mark.parametrize("bad", [-1, 1.5, "2", None])
def test_counts_are_whole_numbers(record, bad):
    with pytest.raises(ValueError, match=r"page 'page-1.png': `tokens` must be a whole number of at least 0, got"):
        PageRecord(**record(1).to_json() | {"tokens": bad})


def test_a_record_with_other_entries_is_refused(record):
    whole = record(1).to_json()
    with pytest.raises(ValueError, match=r"a page: expected .*'first_cell'.*, found"):
        PageRecord.from_json({key: whole[key] for key in whole if key != "first_cell"})
    with pytest.raises(ValueError, match=r"a page: expected .*, found 'page'"):
        PageRecord.from_json("page")


def test_matrices_of_one_page_have_one_shape(record):
    with pytest.raises(ValueError, match=r"page 'page-1.png': expected `mass` of shape \(3, 4\), found \(1, 1\)"):
        PageRecord.from_json(record(1).to_json() | {"mass": [[1.0]]})
