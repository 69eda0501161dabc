"""Images that ship with the installation: scikit-learn's digits and two photographs, and digits on photographs.

The files are read from scikit-learn's folder, without importing the package.
"""

from __future__ import annotations

import gzip
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from tasks.contract.extras import SCIKIT_LEARN, install_command
from tasks.datasets.dataset import DatasetError
from tasks.datasets.images import Images, Labels, Pixels, luma
from tasks.datasets.mixtures import origins
from tasks.datasets.pictures import pixels
from tasks.datasets.source import Content, Source, digest_of
from tasks.numerics import seeds

SIDE = 28  # pixels, as in MNIST


@dataclass(frozen=True)
class Digits:
    """1,797 handwritten digits as text, one per line: 64 grey levels from 0 to 16 and a label.

    Alpaydin & Kaynak 1998, "Optical Recognition of Handwritten Digits", UCI; the test part, as in scikit-learn. Every
    fifth image (rows 0, 5, 10, ...) is in the test split: 360 of them, which leaves 1,437 for training.
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
        """Return all digits (n, 8, 8), with levels from 0 to 16, and their labels (n,)."""
        rows = np.array([line.split(b",") for line in self.text.split()], np.int64)  # (n, 65)
        return rows[:, :64].reshape(-1, 8, 8), rows[:, 64]


@dataclass(frozen=True)
class Photos:
    """Natural patches: photographs of a temple and a flower, cut into disjoint 28x28 grey squares.

    Squares are taken row by row from the top left corner, beginning with the temple. Partial squares at the right and
    bottom edges are dropped. Every fifth square is in the training split; the others are in the test split, from which
    probe sets are drawn. There are no classes: every label is 0.
    """

    encoded: tuple[bytes, ...]

    RULE = "photos 28x28 1"

    def digest(self) -> str:
        return digest_of(self.RULE, self.encoded)

    def images(self) -> Images:
        images = np.concatenate([cut_squares(luma(pixels(photo, channels=3)), SIDE) for photo in self.encoded])
        train = np.arange(len(images)) % 5 == 0
        return Images(images[train], zeros(train), images[~train], zeros(~train), classes=1)


def digits_source() -> Source:
    path = _sklearn_folder() / "data" / "digits.csv.gz"
    return Source(Digits.RULE, (path,), lambda: Digits(gzip.decompress(path.read_bytes())))


def photos_source() -> Source:
    paths = photographs()
    return Source(Photos.RULE, paths, lambda: Photos(tuple(path.read_bytes() for path in paths)))


def photographs() -> tuple[Path, ...]:
    """Return the paths of the two photographs, a temple and a flower."""
    return tuple(_sklearn_folder() / "images" / name for name in ("china.jpg", "flower.jpg"))


def _sklearn_folder() -> Path:
    spec = importlib.util.find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise DatasetError(
            f"the embedded images require scikit-learn, which is not installed: {install_command([SCIKIT_LEARN])}"
        )
    return Path(spec.origin).parent / "datasets"


def enlarge_images(images: NDArray[np.int64], side: int) -> Pixels:
    """Enlarge square images (n, s, s) with levels 0 to 16 bilinearly to bytes (n, side, side), where 16 becomes 255.

    Halves are rounded up. The two multiplications by the interpolation matrix, for rows and then columns, use integers,
    so the result is identical on every machine.
    """
    weights = bilinear_weights(images.shape[1], side)
    scale = 2 * side
    sums = np.einsum("ir,nrc,jc->nij", weights, images, weights, optimize=True)  # in (1 / scale)^2 levels
    full_scale = 16 * scale * scale
    levels: Pixels = ((2 * 255 * sums + full_scale) // (2 * full_scale)).astype(np.uint8)
    return levels


def bilinear_weights(small: int, large: int) -> NDArray[np.int64]:
    """Return the matrix (large, small) of linear interpolation between pixel centres, times 2 * large.

    Pixel i of the result is at (i + 1/2) small / large - 1/2 of the original, clipped to [0, small - 1].
    """
    scale = 2 * large
    positions = np.clip((2 * np.arange(large) + 1) * small - large, 0, (small - 1) * scale)
    lower = np.minimum(positions // scale, small - 2)
    matrix = np.zeros((large, small), np.int64)
    matrix[np.arange(large), lower] = scale - (positions - lower * scale)
    matrix[np.arange(large), lower + 1] = positions - lower * scale
    return matrix


def cut_squares(image: Pixels, side: int) -> Pixels:
    """Cut an image (h, w, c) into disjoint squares (n, side, side, c), row by row from the top left."""
    down = image.shape[0] // side
    across = image.shape[1] // side
    grid = image[: down * side, : across * side].reshape(down, side, across, side, -1)
    return np.ascontiguousarray(grid.transpose(0, 2, 1, 3, 4)).reshape(-1, side, side, image.shape[2])


def zeros(selection: NDArray[np.bool_]) -> Labels:
    return np.zeros(int(selection.sum()), np.int64)


BLENDED_RULE = "digits on photos 1"
BLENDED_SEED = 0


@dataclass(frozen=True)
class Blended:
    """Digits on photographs: a second source of digit images, made from real images.

    Each digit is blended with a photograph square by the absolute difference of the two, |square - digit|, which
    inverts the square's levels under the ink. Squares have the size of the digits and uniformly random positions in the
    two photographs of `photos`, which are converted to grey like the digits. Row i of each split is row i of the
    digits' split, on its own square and with the same label.

    The origin of an image is its digit. A source that must not share digits with another one has to use other rows.

    Ganin et al. 2016, "Domain-adversarial training of neural networks", JMLR 17, section 5.2.4 (MNIST-M), who use
    colour photographs from BSDS500.
    """

    digits: Content
    encoded: tuple[bytes, ...]  # the photographs

    def digest(self) -> str:
        return digest_of(BLENDED_RULE, [self.digits.digest().encode(), *self.encoded])

    def images(self) -> Images:
        digits = self.digits.images()
        photographs = [luma(pixels(photo, channels=3)) for photo in self.encoded]
        train = blend_digits(digits.train_images, photographs, "train")
        test = blend_digits(digits.test_images, photographs, "test")
        return replace(digits, train_images=train, test_images=test, train_origins=origins(digits))


def blended_source(digits: Source) -> Source:
    paths = photographs()
    return Source(
        f"{BLENDED_RULE} {digits.rule}",
        (*digits.files, *paths),
        lambda: Blended(digits.read(), tuple(path.read_bytes() for path in paths)),
    )


def blend_digits(digits: Pixels, photographs: Sequence[Pixels], split: str) -> Pixels:
    """Return |square - digit| for each digit (n, h, w, 1), where squares are cut from photographs (height, width, 1).

    The square used for a row depends on the row and the split, not on the number of rows.
    """
    height, width = digits.shape[1:3]
    smallest = np.min([photo.shape[:2] for photo in photographs], axis=0)
    if digits.shape[3] != 1 or height > smallest[0] or width > smallest[1]:
        expected_shape = f"grey and at most {smallest[0]} x {smallest[1]}"
        raise DatasetError(f"digits to blend with photographs are {digits.shape[1:]}; expected {expected_shape}")
    all_windows = []
    for photo in photographs:
        all_windows.append(sliding_window_view(photo[..., 0], (height, width)))
    ends = np.cumsum([windows.shape[0] * windows.shape[1] for windows in all_windows])
    positions = seeds.generator(BLENDED_SEED, "squares", split).integers(ends[-1], size=len(digits))
    out = np.empty_like(digits)
    for windows, end in zip(all_windows, ends, strict=True):
        across = windows.shape[1]
        begin = end - windows.shape[0] * across
        rows = np.flatnonzero((positions >= begin) & (positions < end))
        top, left = np.divmod(positions[rows] - begin, across)
        squares = windows[top, left][..., None]
        out[rows] = np.maximum(squares, digits[rows]) - np.minimum(squares, digits[rows])
    return out
