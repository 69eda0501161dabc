"""Decoded pixels of image files match the image on a screen."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tasks.datasets.pictures import PictureError, alpha, pixels

GREY = np.array([[0, 100, 200], [255, 50, 1]], np.uint8)
RGB = np.dstack([GREY, GREY[::-1], 255 - GREY])


def encoded(picture: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def encoded_array(values: np.ndarray, kind: str = "PNG", **options: Any) -> bytes:
    return encoded(Image.fromarray(values), kind, **options)


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF"])
def test_grey_has_one_channel_and_colour_three(kind: str) -> None:
    assert GREY[..., None].tolist() == pixels(encoded_array(GREY, kind)).tolist()
    assert RGB.tolist() == pixels(encoded_array(RGB, kind)).tolist()


def test_channels_follow_the_request() -> None:
    assert np.repeat(GREY[..., None], 3, axis=2).tolist() == pixels(encoded_array(GREY), 3).tolist()
    luma = np.rint(RGB @ [0.299, 0.587, 0.114])
    assert np.abs(luma[..., None] - pixels(encoded_array(RGB), 1)).max() <= 1


def test_sixteen_bits_are_scaled_with_half_rounded_up() -> None:
    levels = np.array([[0, 128, 129, 385, 386, 32767, 65406, 65407, 65535]], np.uint16)
    expected = np.floor(levels * (255 / 65535) + 0.5)
    assert expected[0].tolist() == [0, 0, 1, 1, 2, 127, 254, 255, 255]
    assert expected[..., None].tolist() == pixels(encoded_array(levels)).tolist()
    assert expected[0].tolist() == pixels(encoded_array(levels), 3)[0, :, 2].tolist()


def test_black_and_white_and_palettes_are_decoded() -> None:
    one = Image.fromarray(GREY > 99)
    assert (255 * (GREY > 99))[..., None].tolist() == pixels(encoded(one)).tolist()
    palette = Image.fromarray(RGB).quantize(6)
    assert RGB.tolist() == pixels(encoded(palette)).tolist()
    assert pixels(encoded(palette), 1).shape == (2, 3, 1)


def test_image_is_turned_by_its_tag() -> None:
    for tag, turned in ((3, GREY[::-1, ::-1]), (6, np.rot90(GREY, -1)), (2, GREY[:, ::-1])):
        exif = Image.Exif()
        exif[0x0112] = tag
        assert turned[..., None].tolist() == pixels(encoded_array(GREY, exif=exif)).tolist()


def test_transparency_is_dropped_but_available() -> None:
    clear = np.dstack([RGB, GREY])
    assert RGB.tolist() == pixels(encoded_array(clear)).tolist()
    transparency = alpha(encoded_array(clear))
    assert transparency is not None
    assert GREY.tolist() == transparency.tolist()
    assert alpha(encoded_array(GREY)) is None
    assert alpha(encoded_array(RGB)) is None
    assert pixels(encoded(Image.fromarray(clear[..., [0, 3]].copy(), "LA"))).shape == (2, 3, 1)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "cannot be read as an image: cannot identify image file"),
        (encoded_array(GREY, "GIF"), "cannot be read as an image: cannot identify image file"),
        (encoded_array(np.tile(np.dstack([RGB, GREY]), (50, 50, 1)))[:-60], "cannot be read as an image: "),
        (
            encoded_array(GREY.astype(np.float32), "TIFF"),
            "contains numbers of 32 bits without a defined black and white; ",
        ),
        (
            encoded_array(GREY.astype(np.int32), "TIFF"),
            "contains numbers of 32 bits without a defined black and white; ",
        ),
        (
            encoded(Image.fromarray(GREY), "TIFF", save_all=True, append_images=[Image.fromarray(GREY)] * 2),
            "contains 3 images; it must contain one",
        ),
    ],
)
def test_undecodable_images_are_refused(data: bytes, message: str) -> None:
    for decode in (pixels, alpha) if "32 bits" not in message else (pixels,):
        with pytest.raises(PictureError) as caught:
            decode(data)
        assert str(caught.value).startswith(message)
        assert "\n" not in str(caught.value)
        assert "<_io" not in str(caught.value)
