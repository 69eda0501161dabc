"""Synthetic scenes: a square cut from a photograph with one digit near a corner, whose box is known.

Every scene has its own photograph square. Squares do not overlap, so no two scenes show the same region. They are grey
with equal brightness and contrast, so only their texture differs. The digit has its class's colour and is near one of
the four corners, which leaves part of the background visible.

The digit, its position and its square are independent, so the background carries no information about the digit unless
a correlation is set. With a correlation, the background of a scene determines the class of its digit with that
probability: squares are sorted by roughness, smoothest first, into ten groups of equal size, and the group number is
the class. At correlations 0 and 1, all classes have the same number of scenes, to within one. The digits of a class are
used in turn, each equally often to within one.

Sums are integers, and all other operations have a unique result in IEEE arithmetic, so that the bytes are the same on
every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tasks.datasets.boxed.pictures import Boxes
from tasks.datasets.copies import contents, first_rows
from tasks.datasets.embedded import Digits, bilinear_weights, cut_squares, enlarge_images
from tasks.datasets.images import Indices, Labels, Pixels, as_shape
from tasks.datasets.pictures import pixels
from tasks.numerics import seeds

SEED = 0
SIDE = 32  # side of a scene, in pixels
SQUARE = 16  # side of a photograph square, in photograph pixels
DIGIT = 16  # side of a digit and its box, in scene pixels
AWAY = 2  # maximum distance in rows and columns between a digit and its corner
# Of backgrounds, where white is 1. LEAST limits the amplified noise in squares without contrast, such as the sky.
MEAN = 0.35
DEVIATION = 0.15
LEAST = 0.004
WHITEST = 0.8
CLASSES = 10
# RGB of each class: ten equally spaced hues, starting with red.
INKS = (
    *((255, 0, 0), (255, 153, 0), (204, 255, 0), (51, 255, 0), (0, 255, 102)),
    *((0, 255, 255), (0, 102, 255), (51, 0, 255), (204, 0, 255), (255, 0, 153)),
)
NAMES = tuple(str(digit) for digit in range(CLASSES))
PHOTOGRAPHS = ("china", "flower")


@dataclass(frozen=True, eq=False)
class PicturesInMemory:
    """Images of one size in an array, in order of their ids."""

    ids: tuple[str, ...]
    labels: Labels
    names: tuple[str, ...]
    boxes: Sequence[Boxes]
    images: Pixels  # (n, h, w, 3)
    given_parts: tuple[str, ...] | None = None

    @property
    def sizes(self) -> NDArray[np.int32]:
        return np.tile(np.array(self.images.shape[1:3], np.int32), (len(self.ids), 1))

    @property
    def is_validation(self) -> NDArray[np.bool_]:
        return np.zeros(len(self.ids), np.bool_)

    @cached_property
    def first_copies(self) -> NDArray[np.int64]:
        return first_rows(contents(self.images))

    def picture(self, row: int) -> Pixels:
        picture: Pixels = self.images[row]
        return picture

    def squares(self, rows: Indices, side: int) -> Pixels:
        return as_shape(self.images[rows], (side, side, 3))


def scenes(digits: bytes, photographs: Sequence[bytes], correlation: float = 0.0) -> PicturesInMemory:
    """Compose scenes from these digits (`embedded.Digits`) and encoded photographs, one scene per full square.

    An id contains the position of its square: photograph, row and column. If only the correlation changes, a scene
    keeps its background and position but may get another digit.
    """
    ids, squares = cut(photographs)
    levels, labels = Digits(digits).levels()
    grounds = backgrounds(squares)
    digit_rows = _assign_digits(grounds, labels, correlation)
    positions = places(len(squares))
    images = render_scenes(grounds, enlarge_images(levels, DIGIT)[digit_rows], labels[digit_rows], positions)
    boxes = np.concatenate([positions[:, ::-1], positions[:, ::-1] + DIGIT], axis=1).astype(np.int32)
    for array in (images, boxes):
        array.setflags(write=False)
    return PicturesInMemory(ids, labels[digit_rows], NAMES, tuple(box[None] for box in boxes), images)


def cut(photographs: Sequence[bytes]) -> tuple[tuple[str, ...], Pixels]:
    """Cut the photographs into disjoint squares (n, SQUARE, SQUARE, 3).

    Returns their ids, ascending, and the squares.
    """
    ids: list[str] = []
    squares = []
    for name, encoded in zip(PHOTOGRAPHS, photographs, strict=True):
        photograph = pixels(encoded, channels=3)
        across = photograph.shape[1] // SQUARE
        squares.append(cut_squares(photograph, SQUARE))
        ids += (f"{name}-{number // across:03d}-{number % across:03d}" for number in range(len(squares[-1])))
    return tuple(ids), np.concatenate(squares)


def backgrounds(squares: Pixels) -> Pixels:
    """Convert squares (n, s, s, 3) to grey backgrounds (n, SIDE, SIDE) of equal brightness and contrast.

    The channel mean is enlarged bilinearly between pixel centres. It is then rescaled to mean MEAN and deviation
    DEVIATION by (level - mean) / (deviation + LEAST), with the upper limit WHITEST.
    """
    weights = bilinear_weights(SQUARE, SIDE)
    sums = np.einsum("ir,nrc,jc->nij", weights, squares.sum(axis=3, dtype=np.int64), weights, optimize=True)
    count = SIDE * SIDE
    total = sums.sum(axis=(1, 2), keepdims=True)
    # count^2 variance = count sum(x^2) - sum(x)^2, below 2^62: the terms may wrap around, their difference does not.
    spread = np.sqrt((count * (sums * sums).sum(axis=(1, 2), keepdims=True) - total * total).astype(np.float64))
    white = 3 * 255 * (2 * SIDE) ** 2
    above = (count * sums - total) / (spread + LEAST * count * white)
    levels = np.clip(above * DEVIATION + MEAN, 0, WHITEST)
    grounds: Pixels = np.floor(levels * 255 + 0.5).astype(np.uint8)
    return grounds


def _assign_digits(grounds: Pixels, labels: Labels, correlation: float) -> NDArray[np.int64]:
    """Return the row of the digit in each scene, (n,)."""
    count = len(grounds)
    tells = seeds.generator(SEED, "scenes", "correlated").random(count) < correlation
    free = seeds.generator(SEED, "scenes", "classes").permutation(np.arange(count) % CLASSES)
    target_labels = np.where(tells, groups(grounds), free)
    digit_rows = np.empty(count, np.int64)
    for label in range(CLASSES):
        label_rows = seeds.generator(SEED, "scenes", "digits", label).permutation(np.flatnonzero(labels == label))
        rows = np.flatnonzero(target_labels == label)
        digit_rows[rows] = np.resize(label_rows, len(rows))
    return digit_rows


def groups(grounds: Pixels) -> NDArray[np.int64]:
    """Assign each background (n,) to one of ten groups by roughness. Group 0 is the smoothest.

    The groups have equal size, to within one. Roughness is the sum of all absolute differences between neighbouring
    pixels.
    """
    wide = grounds.astype(np.int64)
    rough = np.abs(np.diff(wide, axis=1)).sum(axis=(1, 2)) + np.abs(np.diff(wide, axis=2)).sum(axis=(1, 2))
    rank = np.empty(len(grounds), np.int64)
    rank[np.argsort(rough, kind="stable")] = np.arange(len(grounds))
    return rank * CLASSES // len(grounds)


def places(count: int) -> NDArray[np.int64]:
    """Draw the top and left of each scene's digit (count, 2), at most AWAY pixels from a corner."""
    generator = seeds.generator(SEED, "scenes", "places")
    away = generator.integers(AWAY + 1, size=(count, 2))
    return np.where(generator.random((count, 2)) < 0.5, away, SIDE - DIGIT - away)


def render_scenes(grounds: Pixels, digits: Pixels, labels: Labels, positions: NDArray[np.int64]) -> Pixels:
    """Render scenes (n, SIDE, SIDE, 3): each background with one digit (n, DIGIT, DIGIT), in its class's ink colour.

    The opacity of the ink is the digit's level / 255.
    """
    images = np.repeat(grounds[..., None], 3, axis=3)
    steps = np.arange(DIGIT)
    which = np.arange(len(images))[:, None, None]
    down = positions[:, 0, None, None] + steps[:, None]
    across = positions[:, 1, None, None] + steps
    below = images[which, down, across].astype(np.int64)
    opacity = digits[..., None].astype(np.int64)
    inked = (below * (255 - opacity) + np.array(INKS)[labels][:, None, None] * opacity) * 2 + 255
    images[which, down, across] = (inked // (2 * 255)).astype(np.uint8)
    return images
