"""Any picture becomes one upright RGB array, or is refused by name."""

from __future__ import annotations

import io
import logging
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from headscope.page.image import PageError, content_hash, decode

IMAGES = Path(__file__).parents[1] / "cases" / "img"


@pytest.fixture(scope="module")
def rgb() -> np.ndarray:
    return decode(IMAGES / "rgb.png")


def encoded(image: Image.Image, kind: str, **options) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def words_picture() -> Image.Image:
    return Image.open(IMAGES / "words.png").convert("RGB")


def apart(left: np.ndarray, right: np.ndarray) -> float:
    """Mean difference of two pictures of one size, in grey levels."""
    assert left.shape == right.shape
    return float(np.abs(left.astype(int) - right).mean())


# B01: one upright frame


@pytest.mark.parametrize("name", ["exif6.jpg", "exif8.jpg"])
def test_a_turned_photo_is_decoded_upright_from_every_kind_of_source(name, rgb):
    path = IMAGES / name
    for source in (path, str(path), path.read_bytes(), Image.open(path)):
        image = decode(source)
        assert image.shape == (240, 640, 3)
        assert apart(image, rgb) < 0.5


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["PNG", "TIFF", "JPEG", "WEBP"])
def test_every_orientation_is_applied_exactly_once(orientation, kind):
    upright = Image.new("RGB", (64, 32), "white")
    ImageDraw.Draw(upright).rectangle((0, 0, 23, 7), "black")
    undo = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}  # FLIP_LEFT_RIGHT, ROTATE_180, ..., ROTATE_90 and their inverses
    stored = upright.transpose(Image.Transpose(undo[orientation])) if orientation > 1 else upright
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = decode(encoded(stored, kind, exif=exif))
    assert image.shape == (32, 64, 3)
    assert apart(image, np.asarray(upright)) < 4


def test_a_pil_source_is_left_as_it_was():
    picture = Image.open(IMAGES / "exif6.jpg")
    decode(picture)
    assert picture.size == (240, 640)
    assert picture.getexif()[0x0112] == 6


# B03 to B05: modes and bit depth


@pytest.mark.parametrize(
    "name", ["gray.png", "la.png", "bit.png", "p_adaptive.png", "p_two.png", "full.jpg", "cmyk.jpg"]
)
def test_every_mode_gives_the_rgb_picture(name, rgb):
    assert apart(decode(IMAGES / name), rgb) < 1


@pytest.mark.parametrize("name", ["i16.png", "i16low.png"])
def test_sixteen_bit_greys_are_stretched_from_minimum_to_maximum(name, rgb):
    image = decode(IMAGES / name)
    assert (image.min(), image.max()) == (0, 255)
    assert apart(image, rgb) < 1


@pytest.mark.parametrize(
    "mode", ["1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "HSV", "I", "F", "I;16"]
)
def test_every_pil_mode_with_a_meaning_decodes(mode):
    grey = Image.new("L", (8, 4), 255)
    grey.putpixel((2, 1), 0)
    steps = {
        "LA": ["LA"],
        "La": ["LA", "La"],
        "RGBa": ["RGBA", "RGBa"],
        "PA": ["P", "PA"],
        "I;16": ["I", "I;16"],
        "HSV": ["RGB", "HSV"],
    }
    picture = grey
    for step in steps.get(mode, [mode]):
        picture = picture.convert(step)
    image = decode(picture)
    assert picture.mode == mode
    assert (image[1, 2] < 3).all()
    assert (image[0] > 252).all()


@pytest.mark.parametrize("mode", ["I", "F", "I;16"])
def test_a_blank_grey_of_many_bits_is_white(mode):
    assert (decode(Image.new(mode, (5, 3), 700)) == 255).all()


def test_greys_that_are_not_finite_are_refused():
    with pytest.raises(PageError, match="scan: it holds values that are not finite"):
        decode(Image.fromarray(np.array([[0, np.nan]], np.float32)), name="scan")


@pytest.mark.parametrize("shape", [(4, 6), (4, 6, 1), (4, 6, 3)])
def test_arrays_of_every_shape_become_rgb_copies(shape):
    array = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    image = decode(array)
    expected = np.broadcast_to(array.reshape(4, 6, -1), (4, 6, 3))
    assert np.array_equal(image, expected)
    image[:] = 7
    assert array.flat[1] == 1


def test_sixteen_bit_arrays_are_stretched_and_keep_their_alpha():
    colour = np.array([[[1000, 3000, 5000]]], np.uint16)
    assert decode(colour).tolist() == [[[0, 128, 255]]]
    for order in ("<u2", ">u2"):
        array = np.dstack([colour, [[0xFFFF]]]).astype(order)
        assert decode(array).tolist() == [[[0, 128, 255]]]
        array[..., 3] = 0
        assert decode(array).tolist() == [[[255, 255, 255]]]


def test_arrays_too_thin_for_others_keep_their_axes():
    assert decode(np.zeros((1, 200, 3), np.uint8)).shape == (1, 200, 3)
    assert decode(np.zeros((3, 200, 3), np.uint8)).shape == (3, 200, 3)


@pytest.mark.parametrize(
    "array",
    [np.zeros((3, 40, 50), np.uint8), np.zeros((4, 6), np.float32), np.zeros((4, 6), np.int64), np.zeros(4, np.uint8),
     np.zeros((0, 6, 3), np.uint8), np.zeros((4, 6, 2), np.uint8)],
)  # fmt: skip
def test_arrays_with_an_unclear_meaning_are_refused(array):
    with pytest.raises(PageError, match=r"^array: (an array must be|no pixels)"):
        decode(array)


# B06: transparency


def test_alpha_is_composited_on_white(rgb):
    assert apart(decode(IMAGES / "rgba_blacktext.png"), rgb) < 1
    assert (decode(IMAGES / "rgba_whitetext.png") == 255).all()


@pytest.mark.parametrize("mode", ["L", "P", "RGB", "1"])
def test_a_transparent_colour_of_a_png_turns_white(mode):
    picture = Image.new("L", (8, 4), 0).convert(mode)
    data = encoded(picture, "PNG", transparency=(0, 0, 0) if mode == "RGB" else picture.getpixel((0, 0)))
    assert (decode(data) == 255).all()


# B07: whole or not at all


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM"])
@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
def test_a_cut_off_picture_is_refused_or_whole(kind):
    data = encoded(words_picture(), kind)
    whole = decode(data)
    for length in [*range(0, len(data), len(data) // 23), len(data) - 1, len(data) - 3]:
        try:
            image = decode(data[:length])
        except PageError:
            assert length < len(data)
        else:
            assert np.array_equal(image, whole)
            assert length > len(data) / 2


def test_bad_files_are_one_line_that_names_them(tmp_path):
    (tmp_path / "empty.png").write_bytes(b"")
    (tmp_path / "text.png").write_text("not a picture\n" * 9)
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "cut.jpg").write_bytes((IMAGES / "trunc.jpg").read_bytes())
    reasons = {"empty.png": "empty", "text.png": "not a picture", "folder.png": "Is a directory",
               "missing.png": "No such file", "cut.jpg": "damaged or cut off"}  # fmt: skip
    for name, reason in reasons.items():
        for given in (None, "page 7"):
            with pytest.raises(PageError) as caught:
                decode(tmp_path / name, name=given)
            assert str(caught.value).startswith(f"{given or tmp_path / name}: {reason}")
            assert "\n" not in str(caught.value)


def test_content_decides_and_not_the_suffix(tmp_path, rgb):
    path = tmp_path / "x.jpg"
    path.write_bytes((IMAGES / "anim.gif").read_bytes())
    assert apart(decode(path), rgb) < 1


def test_a_source_of_another_type_is_refused():
    with pytest.raises(PageError, match="a page must be a path, bytes, a PIL picture or an array, got int"):
        decode(7, name="page 7")


# B08: frames


@pytest.mark.parametrize("kind", ["GIF", "TIFF", "file"])
def test_the_first_frame_is_read_with_a_warning_that_counts_them(kind, rgb, caplog):
    if kind == "file":
        source = IMAGES / "anim.gif"
    else:
        second = Image.new("RGB", (640, 240), "navy")
        source = encoded(Image.open(IMAGES / "rgb.png"), kind, save_all=True, append_images=[second])
    with caplog.at_level(logging.WARNING):
        assert apart(decode(source, name="scan"), rgb) < 1
    assert [record.getMessage() for record in caplog.records] == ["scan: 2 frames, only frame 0 is read"]


# B15: the pixel limit


def test_a_huge_picture_is_refused_from_its_header_with_the_limit_named(monkeypatch):
    monkeypatch.setattr(Image.Image, "load", lambda *_: pytest.fail("loaded"))
    header = b"P4\n20000 10000\n"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(
            PageError, match="huge: 20000 x 10000 = 200000000 pixels is over the limit `max_pixels` = 100000000"
        ):
            decode(header, name="huge")


def test_the_limit_is_an_argument_and_the_global_one_has_no_say(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    data = encoded(Image.new("1", (40, 30), 1), "PNG")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert decode(data).shape == (30, 40, 3)
        assert decode(data, max_pixels=1200).shape == (30, 40, 3)
    assert Image.MAX_IMAGE_PIXELS == 10
    for source in (data, Image.new("L", (40, 30)), np.zeros((30, 40), np.uint8)):
        with pytest.raises(PageError, match="`max_pixels` = 1199"):
            decode(source, max_pixels=1199)


def test_a_limit_below_one_is_refused():
    with pytest.raises(ValueError, match="`max_pixels` must be 1 or more, got 0"):
        decode(IMAGES / "rgb.png", max_pixels=0)


# B14 and others: odd sizes decode; the hash is of the content


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("1x1.png", (1, 1, 3)),
        ("1x200.png", (1, 200, 3)),
        ("strip_10x2010.png", (10, 2010, 3)),
        ("tiny20x60.png", (20, 60, 3)),
    ],
)
def test_odd_sizes_decode(name, shape):
    image = decode(IMAGES / name)
    assert image.shape == shape
    assert image.dtype == np.uint8
    assert image.flags.c_contiguous


def test_the_hash_depends_on_pixels_and_shape_alone(rgb):
    assert content_hash(rgb) == content_hash(decode(rgb)) == content_hash(np.asfortranarray(rgb))
    assert content_hash(rgb) != content_hash(rgb.reshape(480, 320, 3))
    other = rgb.copy()
    other[-1, -1, 2] ^= 1
    assert content_hash(rgb) != content_hash(other)
    assert len(content_hash(rgb)) == 64
