"""Precision: how many bytes a number takes, in the weights, in the cache, and in the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

BITS = {
    "float64": 64,
    "float32": 32,
    "float16": 16,
    "bfloat16": 16,
    "float8": 8,
    "float8_e4m3fn": 8,
    "float8_e5m2": 8,
    "int8": 8,
    "uint8": 8,
    "mxfp4": 4.25,  # one scale of 8 bits for 32 weights
    "nvfp4": 4.5,  # one of 8 bits for 16
    "int4": 4,
    "fp4": 4,
    "nf4": 4,
    "int3": 3,
    "int2": 2,
}
SHORT = {"fp64": "float64", "fp32": "float32", "fp16": "float16", "half": "float16", "bf16": "bfloat16"}
SHORT |= {"fp8": "float8", "float": "float32"}
METHODS = {"fp8": "float8", "fbgemm_fp8": "float8", "mxfp4": "mxfp4"}  # checkpoints' quantisations with one width


@dataclass(frozen=True)
class Precision:
    """Names of the dtypes. weight: of the projections. kv: of the cache. rest: of head, embeddings, norms and biases.

    A name is a dtype's, or a number of bits: 4.25 for 4-bit weights with a 16-bit scale and zero point for each 128.
    """

    weight: str = "bfloat16"
    kv: str = "bfloat16"
    rest: str = "bfloat16"

    def __post_init__(self) -> None:
        for name, value in (("weight_dtype", self.weight), ("kv_dtype", self.kv), ("dtype", self.rest)):
            number_bytes(value, name)

    @property
    def weight_bytes(self) -> float:
        """Bytes of one weight of a projection."""
        return number_bytes(self.weight)

    @property
    def kv_bytes(self) -> float:
        """Bytes of one number of a key or a value."""
        return number_bytes(self.kv)

    @property
    def rest_bytes(self) -> float:
        """Bytes of one number of all else."""
        return number_bytes(self.rest)


def number_bytes(dtype: Any, name: str = "dtype") -> float:
    """Bytes of one number of a dtype: a torch dtype, a name such as bfloat16, bf16 or int4, or a number of bits.

    Scales of quantised blocks are counted where the format fixes them (mxfp4, nvfp4), else not.
    """
    text = str(dtype).removeprefix("torch.")
    bits = BITS.get(SHORT.get(text, text)) or _number(text)
    if bits is None or not 0 < bits <= 64:
        raise ValueError(
            f"`{name}` must be one of {', '.join([*BITS, *SHORT])}, or the bits of a number such as 4.25; got {dtype!r}"
        )
    return bits / 8


def read_precision(config: Any, *, dtype: Any = None, weight_dtype: Any = None, kv_dtype: Any = None) -> Precision:
    """Take each dtype as given, else from a transformers config: its dtype, and its quantisation for the projections.

    A config without a dtype counts as bfloat16. The cache has the dtype of the rest unless given.
    """
    text = config.get_text_config()
    rest = _name(dtype or getattr(config, "dtype", None) or getattr(text, "dtype", None) or "bfloat16")
    weight = _name(weight_dtype) if weight_dtype is not None else _quantised(config) or rest
    return Precision(weight=weight, kv=_name(kv_dtype or rest), rest=rest)


def _quantised(config: Any) -> str | None:
    """Read the width of quantised projections from a config; None where they are not quantised."""
    found = getattr(config, "quantization_config", None)
    if found is None:
        return None
    settings = found if isinstance(found, dict) else found.to_dict()
    method = str(settings.get("quant_method", "")).removeprefix("QuantizationMethod.").lower()
    if method in METHODS:
        return METHODS[method]
    for key, width in (("load_in_4bit", "4"), ("load_in_8bit", "8")):
        if settings.get(key) or settings.get(f"_{key}"):
            return width
    if isinstance(bits := settings.get("bits"), int):
        return str(bits)
    raise ValueError(
        f"`weight_dtype` must be given for a config whose quantization is {method or settings}; the account knows no "
        "width for it"
    )


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
