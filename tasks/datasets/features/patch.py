"""What a feature looks like and where it lies: the one form in which any of them is put into an image."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.datasets.images import Pixels, luma

OPAQUE = 255


@dataclass(frozen=True, eq=False)
class Patch:
    """`colour` (h, w, 1 or 3) over an image by `cover` (h, w), from 0 (the image) to 255 (the colour), at its place."""

    cover: NDArray[np.uint8]
    colour: NDArray[np.uint8]
    top: int
    left: int

    def trim(self) -> Patch:
        """The patch without the edges that cover nothing; ValueError where nothing is covered."""
        rows, columns = (np.flatnonzero(self.cover.any(axis=axis)) for axis in (1, 0))
        if not len(rows):
            raise ValueError("the feature covers nothing")
        (top, bottom), (left, right) = ((int(ends[0]), int(ends[-1]) + 1) for ends in (rows, columns))
        here = np.s_[top:bottom, left:right]
        return Patch(self.cover[here], self.colour[here], self.top + top, self.left + left)

    def burn_into(self, images: Pixels, colours: Pixels | None = None) -> Pixels:
        """A copy of the images (n, height, width, channels), each with the patch.

        `colours` (n, h, w, channels) are others than the patch's own, one for each image. ValueError where the patch
        does not fit the images. Blended in whole numbers, rounded to the nearest: the same bytes on every machine.
        """
        self.check_fits(*images.shape[1:3])
        if colours is None:
            colours = self.convert_channels(images.shape[3])[None]
        height, width = self.cover.shape
        burnt = images.copy()
        place = burnt[:, self.top : self.top + height, self.left : self.left + width]
        if (self.cover == OPAQUE).all():
            place[...] = colours
        else:
            cover = self.cover[..., None].astype(np.uint16)  # 255 * 255 + 127 fits
            place[...] = (place * (OPAQUE - cover) + colours * cover + OPAQUE // 2) // OPAQUE
        return burnt

    def convert_channels(self, channels: int) -> Pixels:
        """The colour (h, w, channels): grey by its luma, or grey repeated."""
        if channels == 1 and self.colour.shape[2] == 3:
            grey: Pixels = luma(self.colour[None])[0]
            return grey
        return self.colour if self.colour.shape[2] == channels else self.colour.repeat(channels, axis=2)

    def fits(self, height: int, width: int) -> bool:
        """Whether the patch lies wholly inside an image."""
        return bool(self.top + self.cover.shape[0] <= height and self.left + self.cover.shape[1] <= width)

    def check_fits(self, height: int, width: int) -> None:
        """ValueError where the patch would reach over the edge of an image."""
        if not self.fits(height, width):
            raise ValueError(
                f"a feature of {self.cover.shape[0]} x {self.cover.shape[1]} at top {self.top}, left {self.left} "
                f"does not fit an image of {height} x {width}"
            )

    def pixels(self) -> bytes:
        """What tells one patch from another of the same kind."""
        return b"".join(
            (repr((self.top, self.left, self.colour.shape)).encode(), self.cover.tobytes(), self.colour.tobytes())
        )
