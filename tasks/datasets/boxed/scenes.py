"""Digits on photographs as scenes: a square piece of a photograph for each, one digit in it, the box known.

Every scene has a square of a photograph of its own, and no two squares overlap, so that whatever scenes are taken for
whatever purpose show disjoint regions. The digit, its place and its square are drawn apart from one another: the
background says nothing about the digit, unless a correlation is asked for. Then the background of a scene tells its
digit's class with this probability: its square is in one of ten equally large groups by its mean colour, the darkest
first, and the group's number is the class. All classes have as many scenes, to within one, at correlations 0 and 1.
Within a class its digits are used in turn, each as often as any other to within one.

All is computed in whole numbers, so the same bytes on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks import seeds
from tasks.datasets import embedded
from tasks.datasets.boxed.pictures import Boxes
from tasks.datasets.images import Labels, Pixels, as_shape, decoded
from tasks.datasets.picture_rows import Indices

SEED = 0
SIDE = 32  # of a scene, in pixels
SQUARE = 16  # of its piece of a photograph, in the photograph's pixels
DIGIT = 16  # of its digit, which is its box, in the scene's pixels
INK = (255, 255, 255)  # RGB
CLASSES = 10
NAMES = tuple(str(digit) for digit in range(CLASSES))
PHOTOGRAPHS = ("china", "flower")


@dataclass(frozen=True, eq=False)
class PicturesInMemory:
    """Pictures of one size in an array, in the order of their ids."""

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

    def picture(self, row: int) -> Pixels:
        picture: Pixels = self.images[row]
        return picture

    def squares(self, rows: Indices, side: int) -> Pixels:
        return as_shape(self.images[rows], (side, side, 3))


def scenes(digits: bytes, photographs: Sequence[bytes], correlation: float = 0.0) -> PicturesInMemory:
    """The scenes of these digits (`embedded.Digits`) and encoded photographs, as many as there are whole squares.

    An id says where its square lies: photograph, row and column. With another correlation a scene has the same
    background and place, and may have another digit.
    """
    ids, squares = cut(photographs)
    levels, labels = embedded.Digits(digits).levels()
    chosen = drawn(squares, labels, correlation)
    at = places(len(squares))
    images = rendered(squares, embedded.enlarged(levels, DIGIT)[chosen], at)
    boxes = np.concatenate([at[:, ::-1], at[:, ::-1] + DIGIT], axis=1).astype(np.int32)
    for array in (images, boxes):
        array.setflags(write=False)
    return PicturesInMemory(ids, labels[chosen], NAMES, tuple(box[None] for box in boxes), images)


def cut(photographs: Sequence[bytes]) -> tuple[tuple[str, ...], Pixels]:
    """The photographs' squares (n, SQUARE, SQUARE, 3) that do not overlap, with their ids, ascending."""
    ids: list[str] = []
    squares = []
    for name, encoded in zip(PHOTOGRAPHS, photographs, strict=True):
        photograph = decoded(encoded)
        across = photograph.shape[1] // SQUARE
        squares.append(embedded.squares(photograph, SQUARE))
        ids += (f"{name}-{at // across:03d}-{at % across:03d}" for at in range(len(squares[-1])))
    return tuple(ids), np.concatenate(squares)


def drawn(squares: Pixels, labels: Labels, correlation: float) -> NDArray[np.int64]:
    """(n,): which digit each scene shows."""
    count = len(squares)
    tells = seeds.generator(SEED, "scenes", "correlated").random(count) < correlation
    free = seeds.generator(SEED, "scenes", "classes").permutation(np.arange(count) % CLASSES)
    wanted = np.where(tells, groups(squares), free)
    chosen = np.empty(count, np.int64)
    for label in range(CLASSES):
        own = seeds.generator(SEED, "scenes", "digits", label).permutation(np.flatnonzero(labels == label))
        rows = np.flatnonzero(wanted == label)
        chosen[rows] = np.resize(own, len(rows))
    return chosen


def groups(squares: Pixels) -> NDArray[np.int64]:
    """(n,): which of ten equally large groups, to within one, a square is in by its mean colour, the darkest in 0."""
    brightness = squares.reshape(len(squares), -1).astype(np.int64).sum(axis=1)
    rank = np.empty(len(squares), np.int64)
    rank[np.argsort(brightness, kind="stable")] = np.arange(len(squares))
    return rank * CLASSES // len(squares)


def places(count: int) -> NDArray[np.int64]:
    """(count, 2): the top and left of each scene's digit, anywhere inside the scene."""
    return seeds.generator(SEED, "scenes", "places").integers(SIDE - DIGIT + 1, size=(count, 2))


def rendered(squares: Pixels, digits: Pixels, at: NDArray[np.int64]) -> Pixels:
    """The squares (n, s, s, 3) enlarged to (n, SIDE, SIDE, 3), each with its digit (n, DIGIT, DIGIT) in ink on it.

    A digit's levels are the ink's opacity: level / 255.
    """
    images = enlarged(squares, SIDE)
    steps = np.arange(DIGIT)
    which = np.arange(len(images))[:, None, None]
    down, across = at[:, 0, None, None] + steps[:, None], at[:, 1, None, None] + steps
    below = images[which, down, across].astype(np.int64)
    opacity = digits[..., None].astype(np.int64)
    inked = (below * (255 - opacity) + np.array(INK) * opacity) * 2 + 255
    images[which, down, across] = (inked // (2 * 255)).astype(np.uint8)
    return images


def enlarged(squares: Pixels, side: int) -> Pixels:
    """Squares (n, s, s, c) as (n, side, side, c): bilinear between pixel centres, half rounded up."""
    weights = embedded.bilinear(squares.shape[1], side)
    whole = (2 * side) ** 2
    out = np.empty((len(squares), side, side, squares.shape[3]), np.uint8)
    for first in range(0, len(squares), 256):
        some = squares[first : first + 256].astype(np.int64)
        sums = np.einsum("ir,nrcd,jc->nijd", weights, some, weights, optimize=True)
        out[first : first + 256] = (2 * sums + whole) // (2 * whole)
    return out
