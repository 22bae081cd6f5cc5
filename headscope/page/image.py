"""A decoded picture: one upright RGB array from any file, bytes, PIL picture or array.

The OCR engine and the model get the same array.
"""

from __future__ import annotations

import hashlib
import io
import logging
import struct
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
from PIL import Image, ImageOps

if TYPE_CHECKING:
    from headscope.page import Source

log = logging.getLogger(__name__)

MAX_PIXELS = 100_000_000  # 300 MB of RGB; an A4 sheet scanned at 600 dpi has 35 million


class PageError(ValueError):
    """A page that cannot be read: one line, ``name: reason``."""


def decode(source: Source, *, name: str | None = None, max_pixels: int = MAX_PIXELS) -> np.ndarray:
    """Decode a picture whole into uint8 [height, width, 3]: RGB, upright.

    The content decides the format, not the suffix. EXIF orientation is applied; of several frames the first is read
    (of a PIL picture the current one), with a warning; 16-bit, 32-bit and float greys are stretched from their minimum
    and maximum to 0..255 (a constant one is blank: white); palettes and CMYK become RGB; alpha is composited on white.
    Arrays: uint8, uint16 or bool, [height, width] or [height, width, 1, 3 or 4].

    Raises PageError when the picture cannot be decoded whole or has more than `max_pixels` pixels.
    """
    if max_pixels < 1:
        raise ValueError(f"`max_pixels` must be 1 or more, got {max_pixels}")
    label = name or _name(source)
    try:
        return _decode(source, label, max_pixels)
    except PageError as error:
        raise PageError(f"{label}: {error}") from error
    except MemoryError as error:
        raise PageError(f"{label}: too large for the memory at hand; lower `max_pixels` or shrink the page") from error
    except OSError as error:
        raise PageError(f"{label}: {error.strerror or f'damaged or cut off ({_line(error)})'}") from error
    except Exception as error:  # a damaged file makes Pillow raise nearly anything
        raise PageError(f"{label}: damaged or of an unsupported kind ({_line(error)})") from error


def content_hash(image: np.ndarray) -> str:
    """Give the SHA-256, in hex, of a decoded picture's shape and pixels."""
    digest = hashlib.sha256(f"{image.dtype} {image.shape}".encode())
    digest.update(np.ascontiguousarray(image).data)
    return digest.hexdigest()


def _decode(source: Source, label: str, max_pixels: int) -> np.ndarray:
    if isinstance(source, np.ndarray):
        return _from_array(source, max_pixels)
    if isinstance(source, Image.Image):
        return _from_pil(source, label, max_pixels)
    if isinstance(source, bytes):
        return _from_pil(_identify(io.BytesIO(source)), label, max_pixels)
    if isinstance(source, str | Path):
        with Path(source).open("rb") as stream:
            return _from_pil(_identify(stream), label, max_pixels)
    raise PageError(f"a page must be a path, bytes, a PIL picture or an array, got {type(source).__name__}")


def _identify(stream: IO[bytes]) -> Image.Image:
    """Open a picture by its content.

    As Image.open does it, but without its check against the global Image.MAX_IMAGE_PIXELS: here it is an argument.
    """
    prefix = stream.read(16)
    if not prefix:
        raise PageError("empty, no bytes in it")
    Image.init()
    for kind in Image.ID:
        factory, accept = Image.OPEN[kind]
        accepted = accept(prefix) if accept else True
        if not accepted or isinstance(accepted, str):
            continue
        try:
            stream.seek(0)
            return factory(stream, "")
        except (SyntaxError, IndexError, TypeError, struct.error):
            continue
    raise PageError("not a picture of a known format")


def _from_pil(image: Image.Image, label: str, max_pixels: int) -> np.ndarray:
    _check_size(image.width, image.height, max_pixels)
    frames = getattr(image, "n_frames", 1)
    if frames > 1:
        log.warning("%s: %d frames, only frame %d is read", label, frames, image.tell())
    return _rgb(ImageOps.exif_transpose(image))


def _from_array(array: np.ndarray, max_pixels: int) -> np.ndarray:
    pixels = array[..., None] if array.ndim == 2 else array
    if pixels.ndim != 3 or pixels.shape[2] not in (1, 3, 4):
        raise PageError(f"an array must be [height, width] or [height, width, 1, 3 or 4], got {list(array.shape)}")
    _check_size(pixels.shape[1], pixels.shape[0], max_pixels)
    pixels = _array_to_8_bit(pixels)
    if pixels.shape[2] == 4:
        return _rgb(Image.fromarray(np.ascontiguousarray(pixels)))
    return np.repeat(pixels, 3 // pixels.shape[2], axis=2)


def _array_to_8_bit(pixels: np.ndarray) -> np.ndarray:
    if pixels.dtype == np.uint8:
        return pixels
    if pixels.dtype == bool:
        return pixels.astype(np.uint8) * 255
    if pixels.dtype.kind == "u" and pixels.dtype.itemsize == 2:
        colour, alpha = _stretch(pixels[..., :3]), pixels[..., 3:] >> 8
        return np.concatenate([colour, alpha.astype(np.uint8)], axis=2)
    raise PageError(f"an array must be uint8 or uint16, got {pixels.dtype}; scale it to 0..255 first")


def _rgb(image: Image.Image) -> np.ndarray:
    if image.mode.startswith("I") or image.mode == "F":
        return np.repeat(_stretch(np.asarray(image))[..., None], 3, axis=2)
    if image.has_transparency_data:
        image = (image.convert("LA") if image.mode == "La" else image).convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return np.array(image.convert("RGB"))


def _stretch(values: np.ndarray) -> np.ndarray:
    """Scale numbers from their minimum and maximum to uint8 0..255; constant ones become 255."""
    low, high = float(values.min()), float(values.max())
    if not np.isfinite([low, high]).all():
        raise PageError("it holds values that are not finite")
    if low == high:
        return np.full(values.shape, 255, np.uint8)
    scaled = values.astype(np.float64)
    scaled -= low
    scaled *= 255 / (high - low)
    return np.rint(scaled, out=scaled).astype(np.uint8)


def _check_size(width: int, height: int, max_pixels: int) -> None:
    if width < 1 or height < 1:
        raise PageError(f"no pixels, {width} x {height}")
    if width * height > max_pixels:
        pixels = f"{width} x {height} = {width * height} pixels"
        raise PageError(f"{pixels} is over the limit `max_pixels` = {max_pixels}; raise it or shrink the page")


def _name(source: Source) -> str:
    if isinstance(source, str | Path):
        return str(source)
    if isinstance(source, Image.Image):
        return str(getattr(source, "filename", "") or "picture")
    return "array" if isinstance(source, np.ndarray) else "bytes"


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
