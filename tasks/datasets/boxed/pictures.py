"""Labelled pictures of any size, with the boxes around their objects where they are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tasks.datasets.picture_rows import Indices, Labels, Pixels

# (m, 4): left, top, right and bottom of each in pixels; right and bottom are outside. They may leave the picture.
Boxes = NDArray[np.int32]
NO_BOXES: Boxes = np.zeros((0, 4), np.int32)
NO_BOXES.setflags(write=False)


class BoxedPictures(Protocol):
    """Pictures in the order of their ids, each with a label. It is hashed by what it is, not by its content."""

    @property
    def ids(self) -> tuple[str, ...]:
        """(n,), ascending, all different, and the same wherever the files lie."""

    @property
    def labels(self) -> Labels:
        """(n,), each in [0, len(names))."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of the classes."""

    @property
    def boxes(self) -> Sequence[Boxes]:
        """Of each picture; (0, 4) where none is known."""

    @property
    def sizes(self) -> NDArray[np.int32]:
        """(n, 2): height and width of each in pixels."""

    @property
    def given_parts(self) -> tuple[str, ...] | None:
        """What each picture was to a model of somebody else, where a table says it, else None."""

    @property
    def is_validation(self) -> NDArray[np.bool_]:
        """(n,): whether a picture is in a validation set that comes with the data; all False where there is none."""

    def picture(self, row: int) -> Pixels:
        """One picture whole, (height, width, 3). DatasetError where it cannot be read."""

    def squares(self, rows: Indices, side: int) -> Pixels:
        """Whole pictures brought to squares, (rows, side, side, 3): what trainings hold.

        Bilinear with antialiasing; a picture that is no square is stretched, which `sizes` undoes.
        """
