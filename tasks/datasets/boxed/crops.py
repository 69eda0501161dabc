"""Crop images around their objects, and prepare images for evaluation.

`periphery` is the largest rectangle that touches no box. Rectangles are compared by their shorter side; ties go to the
larger area, then the higher position, then the one further left, then the wider one. Candidates are all maximal empty
rectangles, that is, those that cannot be enlarged on any side. A rectangle may share an edge with a box, since the
right and bottom of a box are exclusive.

`strips` follows the released code: the image is cut into vertical strips at the left and right edges of all boxes, and
in each strip the pieces between the boxes are candidates with the strip's full width. This misses rectangles that are
wider than their strip: above a box that spans a third of the width, only that third is found. Among equal shorter
sides, the lowest piece of the rightmost strip is selected. (The released code also skips images with a box beyond the
right edge; here boxes are clipped to the image.)

`corner` is the lower left corner, a fixed share of the width and height, independent of the boxes. The paper does not
state the share: the default of the released code is 0.3, and the released scripts of Figure 21 set 0.4.

Meehan et al. 2023, "Do SSL models have déjà vu?", section 3 and appendices A.2.1 and A.8.

The evaluation of images and crops is deterministic: the shorter side is resized to 256 / 224 of the resolution, rounded
to whole pixels (256 for 224, 37 for 32), and the central square is cropped, byte for byte like torchvision's Resize and
CenterCrop on Pillow images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from tasks.datasets.boxed.pictures import BoxedPictures, Boxes
from tasks.datasets.images import Indices, Pixels
from tasks.datasets.pictures import MANY_THREADS, map_in_threads

CropName = Literal["periphery", "strips", "corner"]
Rectangle = tuple[int, int, int, int]  # left, top, right, bottom
NOWHERE: Rectangle = (0, 0, 0, 0)
CORNER_SHARE = 0.3  # of the width and the height


def windows(
    pictures: BoxedPictures, rows: Indices, crop: CropName, smallest: int = 100, corner_share: float = CORNER_SHARE
) -> tuple[Boxes, NDArray[np.bool_]]:
    """Return each image's crop rectangle (rows, 4) and whether it is usable (rows,).

    A rectangle is usable if its shorter side is at least `smallest` pixels and the image has boxes; a corner is always
    usable. An image without a rectangle gets an empty one. Raises ValueError for an unknown crop.
    """
    if crop not in get_args(CropName):
        raise ValueError(f"crop is {crop!r}; it must be one of {', '.join(get_args(CropName))}")
    sizes = pictures.sizes[rows]
    if crop == "corner":
        return corners(sizes, corner_share), np.ones(len(rows), np.bool_)
    find = FINDERS[crop]
    rectangles = np.empty((len(rows), 4), np.int32)
    for index, (row, (height, width)) in enumerate(zip(rows.tolist(), sizes.tolist(), strict=True)):
        boxes = pictures.boxes[row]
        if len(boxes):
            rectangles[index] = find(height, width, boxes.tolist())
        else:
            rectangles[index] = NOWHERE
    return rectangles, _shorter_side(rectangles) >= max(1, smallest)


def _shorter_side(windows: Boxes) -> NDArray[np.int32]:
    """Return the shorter side (n,) of each rectangle (n, 4), in pixels."""
    shorter: NDArray[np.int32] = np.minimum(windows[:, 2] - windows[:, 0], windows[:, 3] - windows[:, 1])
    return shorter


def corners(sizes: NDArray[np.int32], share: float = CORNER_SHARE) -> Boxes:
    """Return the lower left corners (n, 4) of images with these heights and widths (n, 2).

    Each side of a corner is the share, in (0, 1], of the image's side, rounded down to whole pixels but at least one.
    """
    height = sizes[:, 0]
    width = sizes[:, 1]
    # Round first, since 0.29 x 100 is 28.999999999999996 in binary.
    tall = np.maximum(1, np.floor(np.round(share * height, 6)).astype(np.int32))
    wide = np.maximum(1, np.floor(np.round(share * width, 6)).astype(np.int32))
    return np.stack([np.zeros_like(wide), height - tall, wide, height], axis=1)


def periphery(height: int, width: int, boxes: Sequence[Sequence[int]]) -> Rectangle:
    """Return the largest rectangle that touches no box.

    If there are no boxes, this is the whole image. If no such rectangle exists, the result is NOWHERE.
    """
    inside = _clip_boxes(height, width, boxes)
    return max(maximal(height, width, inside), key=rank, default=NOWHERE)


def rank(rectangle: Rectangle) -> tuple[int, int, int, int, int]:
    left, top, right, bottom = rectangle
    wide = right - left
    tall = bottom - top
    return min(wide, tall), wide * tall, -top, -left, wide


def maximal(height: int, width: int, boxes: Sequence[Rectangle]) -> Iterator[Rectangle]:
    """Yield all maximal empty rectangles, and some others.

    The left side of each rectangle is the right side of a box or the left edge of the image. Its right side is the left
    side of a box or the right edge of the image. Between these two sides, it fills a gap between boxes.
    """
    lefts = sorted({0, *(box[2] for box in boxes)})
    rights = sorted({width, *(box[0] for box in boxes)})
    for left in lefts:
        for right in rights:
            if left < right:
                for top, bottom in gaps(height, left, right, boxes):
                    yield left, top, right, bottom


def strips(height: int, width: int, boxes: Sequence[Sequence[int]]) -> Rectangle:
    """Return the strip piece with the longest shorter side, as in the released code."""
    inside = _clip_boxes(height, width, boxes)
    edges = sorted({0, width, *(box[0] for box in inside), *(box[2] for box in inside)})
    best = NOWHERE
    for left, right in pairwise(edges):
        for top, bottom in gaps(height, left, right, inside):
            if min(right - left, bottom - top) >= min(best[2] - best[0], best[3] - best[1]):
                best = left, top, right, bottom
    return best


def gaps(height: int, left: int, right: int, boxes: Sequence[Rectangle]) -> Iterator[tuple[int, int]]:
    """Yield the top and bottom of each stretch between left and right that touches no box, from top to bottom."""
    begin = 0
    for top, bottom in sorted((box[1], box[3]) for box in boxes if box[0] < right and box[2] > left):
        if top > begin:
            yield begin, top
        begin = max(begin, bottom)
    if begin < height:
        yield begin, height


def _clip_boxes(height: int, width: int, boxes: Sequence[Sequence[int]]) -> list[Rectangle]:
    """Clip boxes to the image and drop boxes that lie outside."""
    inside = []
    for left, top, right, bottom in boxes:
        inside.append((max(0, left), max(0, top), min(width, right), min(height, bottom)))
    return [box for box in inside if box[0] < box[2] and box[1] < box[3]]


FINDERS: dict[str, Callable[[int, int, Sequence[Sequence[int]]], Rectangle]] = {
    "periphery": periphery,
    "strips": strips,
}


RATIO = (256, 224)
EVALUATED_TOGETHER = 1024  # images in memory at a time


def evaluation_pictures(
    pictures: BoxedPictures, rows: Indices, resolution: int, windows: Boxes | None = None
) -> Pixels:
    """Prepare these images, or one window (rows, 4) of each, as (rows, resolution, resolution, 3).

    Each thread keeps one full image in memory. Raises ValueError for a window that is empty or exceeds its image.
    """
    if resolution < 1:
        raise ValueError(f"resolution is {resolution}; it must be at least 1")
    if windows is not None:
        _check_windows(windows, pictures, rows)
    out = np.empty((len(rows), resolution, resolution, 3), np.uint8)

    def show(index: int) -> None:
        picture = pictures.picture(int(rows[index]))
        if windows is not None:
            left, top, right, bottom = windows[index].tolist()
            picture = picture[top:bottom, left:right]
        out[index] = central_square(picture, resolution)

    for _ in map_in_threads(show, range(len(rows)), MANY_THREADS):
        pass
    return out


def portions(pictures: BoxedPictures, rows: Indices, resolution: int, windows: Boxes | None = None) -> Iterator[Pixels]:
    """Yield the results of `evaluation_pictures` in batches."""
    for start in range(0, len(rows), EVALUATED_TOGETHER):
        batch = slice(start, start + EVALUATED_TOGETHER)
        yield evaluation_pictures(pictures, rows[batch], resolution, None if windows is None else windows[batch])


def _check_windows(windows: Boxes, pictures: BoxedPictures, rows: Indices) -> None:
    if windows.shape != (len(rows), 4):
        raise ValueError(f"windows are {windows.shape}; expected ({len(rows)}, 4)")
    sizes = pictures.sizes[rows]
    first, last = windows[:, :2], windows[:, 2:]
    is_invalid = ((first < 0) | (first >= last) | (last > sizes[:, ::-1])).any(axis=1)
    if is_invalid.any():
        index = int(np.argmax(is_invalid))
        height, width = sizes[index].tolist()
        raise ValueError(
            f"the window of {pictures.ids[int(rows[index])]} is {windows[index].tolist()}; it must be left, top, right "
            f"and bottom of a rectangle inside its {height} x {width} pixels"
        )


def central_square(picture: Pixels, resolution: int) -> Pixels:
    """Resize an image (h, w, 3) by its shorter side, then crop the central square."""
    from PIL import Image

    height, width = picture.shape[:2]
    shorter = (2 * resolution * RATIO[0] + RATIO[1]) // (2 * RATIO[1])
    longer = shorter * max(height, width) // min(height, width)
    size = (shorter, longer) if width <= height else (longer, shorter)  # width, height
    image = Image.fromarray(np.ascontiguousarray(picture)).resize(size, Image.Resampling.BILINEAR)
    # Half pixels are rounded to even, as in torchvision.
    left, top = (round((side - resolution) / 2) for side in size)
    square: Pixels = np.asarray(image.crop((left, top, left + resolution, top + resolution)))
    return square
