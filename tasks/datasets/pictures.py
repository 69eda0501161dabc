"""Decode image files of any size to pixels as displayed, from 8-bit or 16-bit grey, palettes and colour.

Several images are decoded at a time, in threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from tasks.worker.size_limits import open_picture

if TYPE_CHECKING:
    from PIL.Image import Image


SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp")
FORMATS = ("PNG", "JPEG", "BMP", "TIFF", "WEBP")
BITS = 16  # bit depth of images with more than 8 bits
FEWEST_BITS = 9  # smallest number of bits that can be declared for 16-bit images
GREY_MODES = ("1", "L", "LA", "La")
ORIENTATION = 0x0112  # EXIF tag
SIDEWAYS = range(5, 9)  # values of the tag that rotate an image by 90 degrees
PNG_METADATA = (b"eXIf", b"Raw profile type", b"XML:com.adobe.xmp")  # one of which any orientation is in
ENDS = {b"\xff\xd8": b"\xff\xd9", b"\x89PNG": b"IEND"}  # of JPEG and PNG, by their first bytes
TAIL = 16  # bytes in which the end is expected; other files are decoded, which shows whether they are cut
LITTLE = 0.1  # fraction of the declared range below which a note is printed


class PictureError(ValueError):
    """An image cannot be used. The message continues a sentence that begins with the image's name."""


@dataclass(frozen=True)
class Levels:
    """The level of white, and the lowest and highest levels in use."""

    white: int
    lowest: int
    highest: int


@dataclass(frozen=True, eq=False)
class Decoded:
    """An image's pixels (h, w, c), and the levels in its file."""

    pixels: NDArray[np.uint8]
    levels: Levels


def pixels(encoded: bytes, channels: int | None = None) -> NDArray[np.uint8]:
    """Return an image's pixels, as in `decode`."""
    return decode(encoded, channels).pixels


def decode(encoded: bytes, channels: int | None = None, bits: int | None = None, turned: bool = True) -> Decoded:
    """Decode an image to pixels (h, w, c), where c is 1 for grey and 3 (RGB) for colour, or `channels`.

    If `turned`, the image is rotated according to its EXIF tag. Transparency is dropped. 16-bit grey levels are scaled
    by 255 / white, with halves rounded up, where white is 65535 or the highest level of `bits` bits. Raises
    PictureError if the image cannot be decoded, its numbers have no known range, or a level exceeds white.
    """
    from PIL import ImageOps

    with open_single_picture(encoded) as picture:
        upright = ImageOps.exif_transpose(picture) if turned else picture
        own_channels = _channels_of(picture, bits)
        if _has_16_bits(picture):
            return _scale(np.array(upright, np.int64), channels, 2 ** (bits or BITS) - 1)
        if (channels or own_channels) == 1:
            # Convert to RGB first, since a palette may contain colours.
            if upright.mode in ("1", "L", "LA"):
                grey = upright
            else:
                grey = upright.convert("RGB")
            out = np.array(grey.convert("L"))[..., None]
        else:
            out = np.array(upright.convert("RGB"))
    return Decoded(out, Levels(255, int(out.min()), int(out.max())))


def read_shape(encoded: bytes, bits: int | None = None, turned: bool = True) -> tuple[int, int, int]:
    """Return the height, width and channels that `decode` would return, from the image's header.

    Raises PictureError for every image that `decode` rejects by its header.
    """
    with open_single_picture(encoded) as picture:
        channels = _channels_of(picture, bits)
        width, height = picture.size
        if turned and _orientation(picture, encoded) in SIDEWAYS:
            height, width = width, height
        return height, width, channels


def may_be_cut(encoded: bytes) -> bool:
    """Return whether an image lacks the mark at its end, which often means that the file is cut short."""
    return any(encoded.startswith(start) and end not in encoded[-TAIL:] for start, end in ENDS.items())


def _has_16_bits(picture: Image) -> bool:
    return picture.mode.startswith("I;16") or (picture.mode == "I" and picture.format == "PNG")


def _channels_of(picture: Image, bits: int | None) -> int:
    """Return 1 for grey and 3 for colour. Raises PictureError if the levels have no known range."""
    if _has_16_bits(picture):
        return 1
    if picture.mode in ("I", "F"):
        raise PictureError("contains numbers of 32 bits without a defined black and white; save it with 8 or 16 bits")
    if bits is not None:
        raise PictureError(f"has no 16-bit grey levels; remove #bits{bits}, which is for images with such levels")
    return 1 if picture.mode in GREY_MODES else 3


def _orientation(picture: Image, encoded: bytes) -> int:
    """Return the EXIF orientation that remains to be applied, 1 if there is none."""
    if picture.format == "TIFF":  # Pillow rotates it when it reads it, and states the size after that
        return 1
    # Pillow decodes a PNG image to search for metadata behind the pixels.
    if picture.format == "PNG" and not any(marker in encoded for marker in PNG_METADATA):
        return 1
    return int(picture.getexif().get(ORIENTATION, 1))


def _scale(levels: NDArray[np.int64], channels: int | None, white: int) -> Decoded:
    used = Levels(white, int(levels.min()), int(levels.max()))
    if used.highest > white:
        bits = used.highest.bit_length()
        raise PictureError(f"has the level {used.highest}, above {white}; declare #bits{bits}, or no bits")
    grey = ((2 * 255 * levels + white) // (2 * white)).astype(np.uint8)[..., None]
    return Decoded(grey if channels in (None, 1) else np.repeat(grey, 3, axis=2), used)


def range_notes(all_levels: Iterable[Levels]) -> tuple[str, ...]:
    """Return a note for each declared range of which the images use less than a tenth."""
    used: dict[int, Levels] = {}
    for levels in all_levels:
        known_levels = used.get(levels.white, levels)
        lowest = min(known_levels.lowest, levels.lowest)
        highest = max(known_levels.highest, levels.highest)
        used[levels.white] = Levels(levels.white, lowest, highest)
    notes = []
    for white, levels in sorted(used.items()):
        if levels.highest - levels.lowest < LITTLE * white:
            bits = max(FEWEST_BITS, levels.highest.bit_length())
            cure = "rescale the images"
            if white > 255 and 2**bits - 1 < white:
                cure = f"add #bits{bits} to the data set's name, so that {2**bits - 1} is white"
            notes.append(
                f"the images use the levels {levels.lowest} to {levels.highest} of 0 to {white}, less than a tenth; "
                f"if this is not their whole range, {cure}"
            )
    return tuple(notes)


def alpha(encoded: bytes) -> NDArray[np.uint8] | None:
    """Return the opacity of an image's pixels (h, w), where 255 is opaque, or None if it has no transparency."""
    from PIL import ImageOps

    with open_single_picture(encoded) as picture:
        if not picture.has_transparency_data:
            return None
        upright = ImageOps.exif_transpose(picture)
        return np.array(upright.convert("RGBA").getchannel("A"))


@contextmanager
def open_single_picture(encoded: bytes) -> Iterator[Image]:
    """Open an image. Any error while reading it is converted to PictureError."""
    try:
        with open_picture(encoded, FORMATS) as picture:
            frames = getattr(picture, "n_frames", 1)
            if frames > 1 and picture.format != "MPO":  # MPO is a photograph with thumbnails
                raise PictureError(f"contains {frames} images; it must contain one")
            yield picture
    except PictureError:
        raise
    except (OSError, SyntaxError, ValueError, EOFError) as error:
        message = " ".join(str(error).split())
        raise PictureError(f"cannot be read as an image: {message.partition(' <_io')[0]}") from None


# Decoding and hashing release the interpreter lock. For small images, four threads saturate a disk. Images of hundreds
# of pixels per side take milliseconds each.
THREADS = 4
MANY_THREADS = 16
TOGETHER = 1024  # items passed to the threads at a time, which limits the results in memory

S = TypeVar("S")
T = TypeVar("T")


def map_in_threads(function: Callable[[S], T], items: Sequence[S], threads: int = THREADS) -> Iterator[T]:
    """Yield the function's result for each item, in order, using a few threads. Errors of the function are raised."""
    pool = ThreadPoolExecutor(min(threads, os.cpu_count() or 1))
    try:
        for first in range(0, len(items), TOGETHER):
            yield from pool.map(function, items[first : first + TOGETHER])
    finally:
        pool.shutdown(cancel_futures=True)
