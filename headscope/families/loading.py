"""Loading: a model and its processor, by folder or by name, refused by its config before anything big is read."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from huggingface_hub.utils import logging as hub_logging
from safetensors import SafetensorError
from torch import nn
from transformers import AutoConfig, AutoModelForImageTextToText, AutoProcessor, PreTrainedConfig
from transformers.utils import logging

from headscope.families import Family, detect, of_type
from headscope.families.identity import model_identity

__all__ = ["check_device", "load", "model_identity", "read_config"]

DTYPES = ("auto", "float32", "bfloat16", "float16", "float64")
UNREADABLE: tuple[type[Exception], ...] = (OSError, ValueError, TypeError, KeyError, AttributeError, RuntimeError)
UNREADABLE += (ImportError, SafetensorError, StrictDataclassError, struct.error)
HUB_NAME = r"\w[\w.-]*(/[\w.-]+)?"  # "model" or "owner/model"


def read_config(name: str | Path, *, revision: str | None = None) -> PreTrainedConfig:
    """Read a model's config from a local folder or the Hugging Face hub; no weights.

    Raises ValueError for a model of no known family or a broken config, FileNotFoundError when there is no such model.
    """
    path = locate(name)
    try:
        with quiet():
            raw, _ = PreTrainedConfig.get_config_dict(path, revision=revision)
        of_type(raw.get("model_type"))
    except (OSError, AttributeError, TypeError) as error:
        raise _unreadable(name, path, error) from error
    with one_line("config", name):
        return AutoConfig.from_pretrained(path, revision=revision)


def load(
    name: str | Path,
    *,
    dtype: str | torch.dtype = "auto",
    device: str | torch.device | None = None,
    device_map: str | Mapping[str, Any] | None = None,
    revision: str | None = None,
) -> tuple[nn.Module, Any, Family]:
    """Load (model, processor, family), ready for inference.

    name: a local folder, or a model's name on the Hugging Face hub. dtype: of the weights; "auto" is the
    checkpoint's own. device: where to put the whole model (None: the CPU). device_map: spread it instead, as
    transformers does.

    Raises ValueError or FileNotFoundError: for a model of no known family before anything but its config is read.
    """
    if (dtype := str(dtype).removeprefix("torch.")) not in DTYPES:
        raise ValueError(f"`dtype` must be one of {', '.join(DTYPES)}, got {dtype!r}")
    if device is not None and device_map is not None:
        raise ValueError("`device` and `device_map` exclude each other; give one of them")
    config = read_config(name, revision=revision)
    family, path = detect(config), locate(name)
    check_device(device)
    with one_line("processor", name):
        processor = AutoProcessor.from_pretrained(path, revision=revision)
    _check_processor(processor, config, name)
    with one_line("model", name), quiet():
        loader: Any = AutoModelForImageTextToText
        model, report = loader.from_pretrained(
            path, config=config, dtype=dtype, device_map=device_map, revision=revision, output_loading_info=True
        )
    if missing := sorted(report["missing_keys"]):
        raise ValueError(
            f"`model` {str(name)!r} lacks {len(missing)} of its weights, such as {missing[0]}; fetch it again"
        )
    return (model if device is None else model.to(device)).eval(), processor, family


def locate(name: str | Path) -> str:
    """Give a local folder as an absolute path, anything else that can be one as a name on the hub."""
    path = Path(name).expanduser()
    if str(name) and path.is_dir():
        if not (path / "config.json").is_file():
            raise FileNotFoundError(f"`model` must be a folder with a config.json, {str(name)!r} has none")
        return str(path.resolve())
    if path.is_file():
        raise FileNotFoundError(f"`model` must be a folder with a config.json, {str(name)!r} is a file")
    if isinstance(name, Path) or not re.fullmatch(HUB_NAME, name):
        raise FileNotFoundError(
            f"`model` must be a local folder or a name on the Hugging Face hub, got {str(name)!r}, neither"
        )
    return name


def _unreadable(name: str | Path, path: str, error: Exception) -> Exception:
    if Path(path).is_dir():
        return ValueError(f"`model` {str(name)!r} has a broken config.json; fetch it again")
    return FileNotFoundError(
        f"`model` {str(name)!r} is no folder here, and the Hugging Face hub does not give it "
        f"({str(error).splitlines()[0].rstrip('.')}); check the name, or offline: give the folder of a downloaded model"
    )


@contextmanager
def one_line(what: str, name: str | Path) -> Iterator[None]:
    """Turn what goes wrong while a part of a model is read into one line that names the model."""
    try:
        yield
    except UNREADABLE as error:
        kind = FileNotFoundError if isinstance(error, OSError) else ValueError
        raise kind(f"the {what} of `model` {str(name)!r} cannot be read: {_line(error)}") from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def check_device(device: str | torch.device | None) -> None:
    """Refuse a device that torch does not know or does not have here."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(
            f"`device` must be one that torch can use here, got {str(device)!r}: {_line(error)}"
        ) from error


def _check_processor(processor: Any, config: Any, name: str | Path) -> None:
    """Refuse a folder whose tokenizer or picture settings are missing: stand-ins would be used without a word."""
    if not hasattr(processor, "image_processor"):
        raise ValueError(
            f"the processor of `model` {str(name)!r} takes no pictures; preprocessor_config.json is missing"
        )
    if processor.image_token_id != config.image_token_id:
        raise ValueError(
            f"the tokenizer of `model` {str(name)!r} must give its picture token the id {config.image_token_id}, "
            f"got {processor.image_token_id}; its files are missing or another model's"
        )


@contextmanager
def quiet() -> Iterator[None]:
    """Hold back the progress bar of the weights, and what the hub's client says of each attempt to reach the hub."""
    shown, told = logging.is_progress_bar_enabled(), hub_logging.get_verbosity()
    logging.disable_progress_bar()
    hub_logging.set_verbosity_error()
    try:
        yield
    finally:
        hub_logging.set_verbosity(told)
        if shown:
            logging.enable_progress_bar()
