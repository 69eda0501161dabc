"""Images that come with the installation: scikit-learn's handwritten digits and its two photographs.

The files are read where the package lies; scikit-learn itself is never imported.
"""

from __future__ import annotations

import gzip
import importlib.util
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tasks.datasets.content import Source, digest_of
from tasks.datasets.dataset import DatasetError
from tasks.datasets.images import Images, Labels, Pixels, decode_picture, luma

SIDE = 28  # pixels, the size of MNIST's images


@dataclass(frozen=True)
class Digits:
    """1,797 handwritten digits as text: 64 grey levels 0 to 16 and a label per line.

    Alpaydin & Kaynak 1998, "Optical Recognition of Handwritten Digits", UCI; the test part, as in scikit-learn.
    Every fifth image (rows 0, 5, 10, ...) is in the test split: 360 of them, 1,437 for training.
    """

    text: bytes

    RULE = "digits 28x28 1"

    def digest(self) -> str:
        return digest_of(self.RULE, [self.text])

    def images(self) -> Images:
        levels, labels = self.levels()
        images = enlarge_images(levels, SIDE)[..., None]
        test = np.arange(len(images)) % 5 == 0
        return Images(images[~test], labels[~test], images[test], labels[test], classes=10)

    def levels(self) -> tuple[NDArray[np.int64], Labels]:
        """All digits (n, 8, 8) with their levels from 0 to 16, and their labels (n,)."""
        rows = np.array([line.split(b",") for line in self.text.split()], np.int64)  # (n, 65)
        return rows[:, :64].reshape(-1, 8, 8), rows[:, 64]


@dataclass(frozen=True)
class Photos:
    """Natural patches: the photographs of a temple and a flower cut into 28x28 grey squares that do not overlap.

    Squares are taken row by row from the top left corner, the temple's first; what is left at the right and bottom
    edges is dropped. Every fifth is in the training split and the others in the test split, which is what a probe
    set is read from. They show no class: every label is 0.
    """

    encoded: tuple[bytes, ...]

    RULE = "photos 28x28 1"

    def digest(self) -> str:
        return digest_of(self.RULE, self.encoded)

    def images(self) -> Images:
        images = np.concatenate([squares(luma(decode_picture(photo)), SIDE) for photo in self.encoded])
        train = np.arange(len(images)) % 5 == 0
        return Images(images[train], zeros(train), images[~train], zeros(~train), classes=1)


def digits() -> Source:
    path = folder() / "data" / "digits.csv.gz"
    return Source(Digits.RULE, (path,), lambda: Digits(gzip.decompress(path.read_bytes())))


def photos() -> Source:
    paths = photographs()
    return Source(Photos.RULE, paths, lambda: Photos(tuple(path.read_bytes() for path in paths)))


def photographs() -> tuple[Path, ...]:
    """The photographs of a temple and of a flower."""
    return tuple(folder() / "images" / name for name in ("china.jpg", "flower.jpg"))


def folder() -> Path:
    """The folder in which scikit-learn keeps its data sets."""
    spec = importlib.util.find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise DatasetError(
            "the embedded images come with scikit-learn, which is not installed: pip install scikit-learn"
        )
    return Path(spec.origin).parent / "datasets"


def enlarge_images(images: NDArray[np.int64], side: int) -> Pixels:
    """Square images (n, s, s) of levels 0 to 16 as (n, side, side) bytes: bilinear, 16 becoming 255, half rounded up.

    Two multiplications by the interpolation matrix, rows then columns, in whole numbers: exact, so the same bytes on
    every machine.
    """
    weights = bilinear(images.shape[1], side)
    scale = 2 * side
    sums = np.einsum("ir,nrc,jc->nij", weights, images, weights, optimize=True)  # in (1 / scale)^2 levels
    whole = 16 * scale * scale
    levels: Pixels = ((2 * 255 * sums + whole) // (2 * whole)).astype(np.uint8)
    return levels


def bilinear(small: int, large: int) -> NDArray[np.int64]:
    """The (large, small) matrix of linear interpolation between pixel centres, times 2 * large.

    Pixel i of the result lies at (i + 1/2) small / large - 1/2 of the original, moved inside [0, small - 1].
    """
    scale = 2 * large
    places = np.clip((2 * np.arange(large) + 1) * small - large, 0, (small - 1) * scale)
    left = np.minimum(places // scale, small - 2)
    matrix = np.zeros((large, small), np.int64)
    matrix[np.arange(large), left] = scale - (places - left * scale)
    matrix[np.arange(large), left + 1] = places - left * scale
    return matrix


def squares(image: Pixels, side: int) -> Pixels:
    """The (n, side, side, c) squares of an image (h, w, c) that do not overlap, row by row from the top left."""
    down, across = image.shape[0] // side, image.shape[1] // side
    grid = image[: down * side, : across * side].reshape(down, side, across, side, -1)
    return np.ascontiguousarray(grid.transpose(0, 2, 1, 3, 4)).reshape(-1, side, side, image.shape[2])


def zeros(chosen: NDArray[np.bool_]) -> Labels:
    return np.zeros(int(chosen.sum()), np.int64)
