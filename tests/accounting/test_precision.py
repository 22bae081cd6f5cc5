"""Bytes of a number, by its dtype or its bits, given or read from a config."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from headscope.accounting.config import from_dict, load_config
from headscope.accounting.precision import BITS, Precision, number_bytes, read_precision


@pytest.mark.parametrize("name", [name for name in BITS if hasattr(torch, name) and "float8" not in name[:6]])
def test_a_dtype_of_torch_has_its_bytes(name: str) -> None:
    dtype = getattr(torch, name)
    if isinstance(dtype, torch.dtype) and name != "int4":  # torch stores four bits in a byte
        whole = {"int3", "int2"}
        assert name in whole or number_bytes(dtype) == number_bytes(name) == dtype.itemsize


@pytest.mark.parametrize(("name", "size"), [("bf16", 2), ("fp8", 1), ("int4", 0.5), ("4.25", 0.53125), ("fp32", 4)])
def test_short_names_and_bits(name: str, size: float) -> None:
    assert number_bytes(name) == size


@pytest.mark.parametrize("name", ["bfloat", "0", "-4", "nan", "128", ""])
def test_what_is_no_dtype_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="`kv_dtype` must be one of float64, .*, or the bits of a number such as 4.25"):
        Precision(kv=name)


def test_the_config_says_what_is_not_given() -> None:
    llava = load_config("llava-next-vicuna-7b")
    assert read_precision(llava) == Precision("float16", "float16", "float16")
    assert read_precision(llava, weight_dtype="int4", kv_dtype=torch.float8_e4m3fn) == Precision(
        "int4", "float8_e4m3fn", "float16"
    )
    assert read_precision(llava, dtype="float32") == Precision("float32", "float32", "float32")


@pytest.mark.parametrize(
    ("settings", "size"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 1),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, 0.5),
        ({"quant_method": "gptq", "bits": 3, "group_size": 128}, 0.375),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 0.5),
        ({"quant_method": "mxfp4"}, 0.53125),
    ],
)
def test_quantised_projections_are_smaller_and_the_rest_is_not(settings: dict[str, Any], size: float) -> None:
    config = from_dict({"model_type": "llama", "torch_dtype": "bfloat16", "quantization_config": settings})
    found = read_precision(config)
    assert (found.weight_bytes, found.kv_bytes, found.rest_bytes) == (size, 2, 2)


def test_a_quantisation_of_no_known_width_must_be_told() -> None:
    config = from_dict({"model_type": "llama", "quantization_config": {"quant_method": "aqlm"}})
    with pytest.raises(ValueError, match="`weight_dtype` must be given for a config whose quantization is aqlm"):
        read_precision(config)
    assert read_precision(config, weight_dtype="2.07").weight_bytes == pytest.approx(0.25875)
