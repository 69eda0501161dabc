"""Pixels of picture files of any kind, as a person sees them: 8 or 16 bit grey, palettes, colour, any size.

Several files are read and decoded by threads, a few at a time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from tasks.worker.size_limits import open_picture

if TYPE_CHECKING:
    from PIL.Image import Image


SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp")
FORMATS = ("PNG", "JPEG", "BMP", "TIFF", "WEBP")


class PictureError(ValueError):
    """A picture cannot be used; the message follows the picture's name."""


def pixels(encoded: bytes, channels: int | None = None) -> NDArray[np.uint8]:
    """One picture's pixels (h, w, c): c = 1 where it has no colour, else 3 (RGB), or `channels`.

    The picture is turned by its EXIF tag and transparency is dropped. 16-bit grey levels are scaled by 255 / 65535,
    half rounded up, so white stays white. PictureError where it cannot be decoded, or its numbers have no known range.
    """
    from PIL import ImageOps

    with open_single_picture(encoded) as picture:
        if picture.mode.startswith("I;16") or (picture.mode == "I" and picture.format == "PNG"):
            levels = np.array(ImageOps.exif_transpose(picture), np.int64)
            grey = ((2 * 255 * levels + 65535) // (2 * 65535)).astype(np.uint8)[..., None]
            return grey if channels in (None, 1) else np.repeat(grey, 3, axis=2)
        if picture.mode in ("I", "F"):
            raise PictureError("holds numbers of 32 bits, whose black and white nobody says; save it with 8 or 16 bits")
        colourless = channels == 1 or (channels is None and picture.mode in ("1", "L", "LA", "La"))
        shown = ImageOps.exif_transpose(picture)
        if not colourless:
            return np.array(shown.convert("RGB"))
        # By way of RGB, for a palette may be of colours.
        return np.array((shown if shown.mode in ("1", "L", "LA") else shown.convert("RGB")).convert("L"))[..., None]


def alpha(encoded: bytes) -> NDArray[np.uint8] | None:
    """The opacity of one picture's pixels, (h, w), 255 for opaque; None where it has no transparency."""
    from PIL import ImageOps

    with open_single_picture(encoded) as picture:
        if not picture.has_transparency_data:
            return None
        shown = ImageOps.exif_transpose(picture)
        return np.array(shown.convert("RGBA").getchannel("A"))


@contextmanager
def open_single_picture(encoded: bytes) -> Iterator[Image]:
    """The opened picture; every error in reading it becomes a PictureError."""
    try:
        with open_picture(encoded, FORMATS) as picture:
            frames = getattr(picture, "n_frames", 1)
            if frames > 1 and picture.format != "MPO":  # a photograph with its own thumbnails
                raise PictureError(f"holds {frames} pictures; it must hold one")
            yield picture
    except PictureError:
        raise
    except (OSError, SyntaxError, ValueError, EOFError) as error:
        message = " ".join(str(error).split())
        raise PictureError(f"cannot be read as a picture: {message.partition(' <_io')[0]}") from None


# Decoding and hashing leave the interpreter, so threads share it: from four on a disk has no more to give for small
# pictures, while those of hundreds of pixels a side take milliseconds each.
THREADS, MANY_THREADS = 4, 16
TOGETHER = 1024  # items given to the threads at a time, so that no more results wait in memory

S = TypeVar("S")
T = TypeVar("T")


def map_in_threads(function: Callable[[S], T], items: Sequence[S], threads: int = THREADS) -> Iterator[T]:
    """The function's result for each item, in order, by a few threads; what it raises is raised here."""
    pool = ThreadPoolExecutor(min(threads, os.cpu_count() or 1))
    try:
        for first in range(0, len(items), TOGETHER):
            yield from pool.map(function, items[first : first + TOGETHER])
    finally:
        pool.shutdown(cancel_futures=True)
