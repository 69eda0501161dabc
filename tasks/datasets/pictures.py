"""The one decoder of picture files: pixels as a person sees them, of 8 or 16 bit grey, palettes, colour, any size.

Several pictures are decoded by threads, a few at a time.
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
BITS = 16  # of a picture that has more than 8
FEWEST_BITS = 9  # that a picture of 16 bits can be declared to use
LITTLE = 0.1  # share of the declared range, below which a set is noted


class PictureError(ValueError):
    """A picture cannot be used; the message follows the picture's name."""


@dataclass(frozen=True)
class Levels:
    """The level that stands for white, and the lowest and highest level that occur."""

    white: int
    lowest: int
    highest: int


@dataclass(frozen=True, eq=False)
class Decoded:
    """A picture's pixels (h, w, c), and the levels that its file holds."""

    pixels: NDArray[np.uint8]
    levels: Levels


def pixels(encoded: bytes, channels: int | None = None) -> NDArray[np.uint8]:
    """One picture's pixels, as `decode` gives them."""
    return decode(encoded, channels).pixels


def decode(encoded: bytes, channels: int | None = None, bits: int | None = None, turned: bool = True) -> Decoded:
    """One picture's pixels (h, w, c), where c = 1 if it has no colour and 3 (RGB) otherwise, or `channels`.

    The picture is turned by its EXIF tag, if it is to be `turned`, and transparency is dropped. 16-bit grey levels are
    scaled by 255 / white, half rounded up, so that white stays white: 65535, or the highest level of `bits` bits.
    Raises PictureError if the picture cannot be decoded, its numbers have no known range, or a level is above white.
    """
    from PIL import ImageOps

    with open_single_picture(encoded) as picture:
        shown = ImageOps.exif_transpose(picture) if turned else picture
        if picture.mode.startswith("I;16") or (picture.mode == "I" and picture.format == "PNG"):
            return _scale(np.array(shown, np.int64), channels, 2 ** (bits or BITS) - 1)
        if picture.mode in ("I", "F"):
            raise PictureError("holds numbers of 32 bits, whose black and white nobody says; save it with 8 or 16 bits")
        if bits is not None:
            raise PictureError(f"has no 16-bit grey levels; #bits{bits} is for pictures that have them, leave it out")
        if channels == 1 or (channels is None and picture.mode in ("1", "L", "LA", "La")):
            # By way of RGB, for a palette may be of colours.
            grey = shown if shown.mode in ("1", "L", "LA") else shown.convert("RGB")
            out = np.array(grey.convert("L"))[..., None]
        else:
            out = np.array(shown.convert("RGB"))
    return Decoded(out, Levels(255, int(out.min()), int(out.max())))


def _scale(levels: NDArray[np.int64], channels: int | None, white: int) -> Decoded:
    used = Levels(white, int(levels.min()), int(levels.max()))
    if used.highest > white:
        bits = used.highest.bit_length()
        raise PictureError(f"has the level {used.highest}, above {white}; declare #bits{bits}, or no bits")
    grey = ((2 * 255 * levels + white) // (2 * white)).astype(np.uint8)[..., None]
    return Decoded(grey if channels in (None, 1) else np.repeat(grey, 3, axis=2), used)


def range_notes(every: Iterable[Levels]) -> tuple[str, ...]:
    """A note for each declared range of which a set's pictures use less than a tenth."""
    used: dict[int, Levels] = {}
    for levels in every:
        so_far = used.get(levels.white, levels)
        lowest, highest = min(so_far.lowest, levels.lowest), max(so_far.highest, levels.highest)
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
                f"if that is not their whole range, {cure}"
            )
    return tuple(notes)


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
