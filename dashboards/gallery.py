"""The pictures of a run: images that its audit is about, where they may be seen."""

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
    """An image of the data, one pixel a pixel; whoever shows it enlarges it without smoothing.

    `group` is what it has in common with those beside it, as a heading; those of a group follow one another.
    """

    png: bytes
    title: str
    alt: str
    group: str = ""


@dataclass(frozen=True)
class Gallery:
    """A run's pictures, or, where `shown` is false, the note that stands in their place."""

    caption: str
    shown: bool
    note: str = ""
    pictures: tuple[Picture, ...] = ()


def gallery(run: Run, show_images: bool) -> Gallery | None:
    """The run's pictures; None where its audit has none, or no result that they would show.

    Images of embedded data are shown to everybody, the user's own only with `show_images`.
    """
    own = audits.find(run.audit)
    if own is None or run.cells or not hasattr(own, "gallery"):
        return None
    found: Gallery | None = own.gallery(run, show_images)
    return found


def reason(run: Run, error: Exception) -> str:
    """What went wrong, unless it may tell what is private in the run."""
    return "" if run.withholds else f": {' '.join(str(error).split())}"


def encoded(image: Pixels) -> bytes:
    """The image as PNG, a pixel a pixel."""
    from PIL import Image

    written = BytesIO()
    Image.fromarray(image if image.shape[2] == 3 else image[..., 0]).save(written, "PNG", optimize=True)
    return written.getvalue()
