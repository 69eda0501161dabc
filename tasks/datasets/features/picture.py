"""A picture put into images: a stamp, a logo, a signature."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tasks import seeds
from tasks.datasets.features.patch import OPAQUE, Patch
from tasks.datasets.pictures import PictureError, alpha, pixels
from tasks.files import File, read
from tasks.ranges import check_minimums


@dataclass(frozen=True)
class Picture:
    """An image file, pixel for pixel; it covers all of its rectangle where it has neither mask nor transparency."""

    prefix: ClassVar[str] = "picture:"  # of its text form

    image: File
    """The picture's file."""
    mask: File | None = None
    """An image file of the same size, white where the picture covers the image (grey: partly); none: its own
    transparency."""
    top: int = 1
    """Pixels from the image's upper edge."""
    left: int = 1
    """Pixels from the image's left edge."""
    seed: int = 0
    """Other than 0, the permutation of the pixels inside the mask: a member of the picture's family, of the same
    ink."""

    def __post_init__(self) -> None:
        check_minimums(self, {"top": 0, "left": 0, "seed": 0})

    @staticmethod
    def parse(text: str) -> Picture:
        """A picture written `picture:stamp.png`."""
        if not text.startswith(Picture.prefix):
            raise ValueError(f"it must begin with {Picture.prefix}")
        return Picture(File.parse(text.removeprefix(Picture.prefix)))

    def __str__(self) -> str:
        return f"{self.prefix}{self.image}"

    def patch(self) -> Patch:
        """ValueError where a file cannot be read, the mask has another size, or nothing is covered."""
        colour = decode_file(self.image)
        cover = self.cover(colour.shape[:2])
        if self.seed:
            inside = np.flatnonzero(cover)
            order = inside[seeds.generator(self.seed, "permuted picture").permutation(len(inside))]
            cover, colour = cover.copy(), colour.copy()
            cover.ravel()[inside] = cover.ravel()[order]
            flat = colour.reshape(-1, colour.shape[2])
            flat[inside] = flat[order]
        return Patch(cover, colour, self.top, self.left).trim()

    def cover(self, shape: tuple[int, ...]) -> NDArray[np.uint8]:
        """What it covers, (h, w), from 0 (nothing) to 255."""
        if self.mask is None:
            own = alpha(read(self.image))
            return np.full(shape, OPAQUE, np.uint8) if own is None else own
        mask = decode_file(self.mask, grey=True)[..., 0]
        if mask.shape != shape:
            sizes = f"{mask.shape[0]} x {mask.shape[1]}, {self.image.path} {shape[0]} x {shape[1]}"
            raise ValueError(f"the mask {self.mask.path} is {sizes}; they must be of one size")
        return mask

    def describe(self) -> str:
        return f"the picture {Path(self.image.path).name}"


def decode_file(file: File, grey: bool = False) -> NDArray[np.uint8]:
    try:
        return pixels(read(file), channels=1 if grey else None)
    except PictureError as error:
        raise ValueError(f"{file.path} {error}") from None
