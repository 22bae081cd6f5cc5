"""Precision: the bytes of one token in one KV head."""

from __future__ import annotations

import pytest
import torch

from headscope.budget.precision import item_bytes, token_bytes


@pytest.mark.parametrize(
    ("dtype", "bytes"),
    [("bfloat16", 2), ("float16", 2), ("float32", 4), ("torch.float64", 8), ("float8_e4m3fn", 1), (torch.float32, 4)],
)
def test_a_dtype_goes_by_name_or_as_it_is(dtype, bytes):
    assert item_bytes(dtype) == bytes
    assert token_bytes(dtype, 128) == 2 * 128 * bytes


@pytest.mark.parametrize("dtype", ["bf16", "nn", "Tensor", None, 2])
def test_what_is_no_dtype_is_refused(dtype):
    with pytest.raises(ValueError, match="`dtype` must be the name of a torch dtype, such as bfloat16"):
        item_bytes(dtype)


@pytest.mark.parametrize("head_dim", [None, 0, 32.0])
def test_bytes_need_the_heads_size(head_dim):
    with pytest.raises(ValueError, match="`head_dim` must be the model's, a whole number above 0, to count bytes"):
        token_bytes("bfloat16", head_dim)
