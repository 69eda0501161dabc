"""Pictures as a model is shown them when nothing is drawn by chance.

The shorter side is brought to 256 / 224 of the resolution, rounded to whole pixels (256 for 224, 37 for 32), and the
square in the centre is cut out: torchvision's Resize and CenterCrop on pictures of Pillow, to the byte.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tasks.datasets.boxed.decoding import map_in_threads
from tasks.datasets.boxed.pictures import BoxedPictures, Boxes
from tasks.datasets.picture_rows import Indices, Pixels

RATIO = (256, 224)
TOGETHER = 1024  # pictures in memory at a time


def evaluation_pictures(
    pictures: BoxedPictures, rows: Indices, resolution: int, windows: Boxes | None = None
) -> Pixels:
    """These pictures, (rows, resolution, resolution, 3), or the windows (rows, 4) of them, one each.

    Beside the result there are as many whole pictures in memory as threads. ValueError for a window that is empty or
    leaves its picture.
    """
    if resolution < 1:
        raise ValueError(f"resolution is {resolution}; it must be at least 1")
    if windows is not None:
        check(windows, pictures, rows)
    out = np.empty((len(rows), resolution, resolution, 3), np.uint8)

    def show(at: int) -> None:
        picture = pictures.picture(int(rows[at]))
        if windows is not None:
            left, top, right, bottom = windows[at].tolist()
            picture = picture[top:bottom, left:right]
        out[at] = centre(picture, resolution)

    for _ in map_in_threads(show, range(len(rows))):
        pass
    return out


def portions(pictures: BoxedPictures, rows: Indices, resolution: int, windows: Boxes | None = None) -> Iterator[Pixels]:
    """`evaluated`, some pictures at a time."""
    for start in range(0, len(rows), TOGETHER):
        some = slice(start, start + TOGETHER)
        yield evaluation_pictures(pictures, rows[some], resolution, None if windows is None else windows[some])


def check(windows: Boxes, pictures: BoxedPictures, rows: Indices) -> None:
    if windows.shape != (len(rows), 4):
        raise ValueError(f"windows are {windows.shape}; expected ({len(rows)}, 4)")
    sizes = pictures.sizes[rows]
    first, last = windows[:, :2], windows[:, 2:]
    wrong = ((first < 0) | (first >= last) | (last > sizes[:, ::-1])).any(axis=1)
    if wrong.any():
        at = int(np.argmax(wrong))
        height, width = sizes[at].tolist()
        raise ValueError(
            f"the window of {pictures.ids[int(rows[at])]} is {windows[at].tolist()}; it must be left, top, right and "
            f"bottom of a rectangle inside its {height} x {width} pixels"
        )


def centre(picture: Pixels, resolution: int) -> Pixels:
    """The square in the centre of a picture (h, w, 3) whose shorter side is brought to the resolution's."""
    from PIL import Image

    height, width = picture.shape[:2]
    shorter = (2 * resolution * RATIO[0] + RATIO[1]) // (2 * RATIO[1])
    longer = shorter * max(height, width) // min(height, width)
    size = (shorter, longer) if width <= height else (longer, shorter)  # width, height
    image = Image.fromarray(np.ascontiguousarray(picture)).resize(size, Image.Resampling.BILINEAR)
    # Half a pixel is rounded to the even one, as torchvision does it.
    left, top = (round((side - resolution) / 2) for side in size)
    shown: Pixels = np.asarray(image.crop((left, top, left + resolution, top + resolution)))
    return shown
