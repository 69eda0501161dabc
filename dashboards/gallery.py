"""The gallery of a run: the images that its audit is about, as far as they may be shown."""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

from dashboards import audits
from dashboards.run import Run

Pixels = NDArray[np.uint8]  # (height, width, channels)


@dataclass(frozen=True)
class Picture:
    """An image of the data in its own resolution, to be enlarged without smoothing.

    `group` is the heading of the pictures it belongs to, which are consecutive.
    """

    png: bytes
    title: str
    alt: str
    group: str = ""


@dataclass(frozen=True)
class Gallery:
    """A run's pictures, or the note in their place if `shown` is false."""

    caption: str
    shown: bool
    note: str = ""
    pictures: tuple[Picture, ...] = ()


def gallery(run: Run, show_images: bool) -> Gallery | None:
    """The run's pictures; None if its audit has no gallery or there are no results to show.

    Images of embedded data are shown to everybody, the user's own only with `show_images`.
    """
    own = audits.find(run.audit)
    if own is None or run.cells or not hasattr(own, "gallery"):
        return None
    pictures: Gallery | None = own.gallery(run, show_images)
    return pictures


def reason(run: Run, error: Exception) -> str:
    """The error's message; empty if the run has private fields, which it might quote."""
    return "" if run.withholds else f": {' '.join(str(error).split())}"


def encoded(image: Pixels) -> bytes:
    """The image as PNG in its own resolution."""
    from PIL import Image

    written = BytesIO()
    Image.fromarray(image if image.shape[2] == 3 else image[..., 0]).save(written, "PNG", optimize=True)
    return written.getvalue()
