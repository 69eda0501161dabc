"""Labelled images in two splits, either in memory or read by rows, for example from a cache on disk."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tasks.datasets.dataset import DatasetError

if TYPE_CHECKING:
    from tasks.datasets.feature_columns import TableEncoding

Pixels = NDArray[np.uint8]  # (n, height, width, channels)
# Records of a table are stored like images of one pixel, as float32 (n, 1, 1, features). The type above covers both.
ONE_PIXEL = (1, 1)
Labels = NDArray[np.int64]  # (n,), each in [0, classes)
Indices = NDArray[np.integer]  # (n,), each in [0, len(rows)), in any order, with or without repeats


class PictureRows(Protocol):
    """Images of one shape with labels, such as a split."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of every image."""

    @property
    def labels(self) -> Labels:
        """The labels (n,), each in [0, classes)."""

    def __len__(self) -> int: ...

    def pixels(self, rows: Indices) -> Pixels:
        """Return the images of these rows, (rows, height, width, channels).

        Raises DatasetError if they cannot be read.
        """


class Splits(Protocol):
    """Training and test splits of images of one shape. Hashed by identity, not by content."""

    @property
    def train(self) -> PictureRows: ...

    @property
    def test(self) -> PictureRows: ...

    @property
    def classes(self) -> int: ...

    @property
    def names(self) -> tuple[str, ...]:
        """The class names, if any."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of every image."""


class PictureSet(Splits, Protocol):
    """A data set as tasks read it: labels and shapes are in memory, pixels are read by rows (see `Images`)."""

    @property
    def train_groups(self) -> NDArray[np.int64] | None:
        """The group number of each training image (n,), or None if every image is its own group."""

    @property
    def train_origins(self) -> NDArray[np.uint8] | None:
        """The SHA-256 of the original of each training image (n, 32), or None if no image derives from another."""

    @property
    def train_hashes(self) -> NDArray[np.uint8] | None:
        """The SHA-256 of each encoded training image (n, 32), or None if they are not a user's unchanged files."""

    @property
    def notes(self) -> tuple[str, ...]:
        """One-line warnings from the reader."""

    @property
    def features(self) -> tuple[str, ...]:
        """The names of a table's features."""

    @property
    def encoding(self) -> TableEncoding | None:
        """The conversion of other rows of a table."""

    @property
    def train_file_rows(self) -> NDArray[np.int64] | None:
        """The rows of a table's file that are the training records (n,), counted from 0."""

    @property
    def is_table(self) -> bool:
        """Whether these are records of a table rather than images."""

    def file_rows(self, rows: Labels) -> Labels:
        """Return the numbers that a user's program has for these training rows: for a table, the rows of its file."""

    @property
    def file_row_count(self) -> int:
        """How many records a user's program numbers: all rows of a table's file, or all training images."""


@dataclass(frozen=True, eq=False)
class InMemory:
    """Images in an array."""

    images: Pixels  # (n, h, w, c)
    labels: Labels

    @property
    def shape(self) -> tuple[int, int, int]:
        height, width, channels = self.images.shape[1:]
        return height, width, channels

    def __len__(self) -> int:
        return len(self.images)

    def pixels(self, rows: Indices) -> Pixels:
        return self.images[rows]


@dataclass(frozen=True, eq=False)
class Opened:
    """Splits that are read by rows."""

    train: PictureRows
    test: PictureRows
    classes: int
    names: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.train.shape


def pixel_bytes(pictures: Splits) -> int:
    height, width, channels = pictures.shape
    values = (len(pictures.train) + len(pictures.test)) * height * width * channels
    return values * pictures.train.pixels(np.arange(1)).itemsize


BLOCK = 1 << 24  # pixel values that are read together; as float32, 64 MiB
BATCHES = 512  # rows that networks evaluate together


def blocks(rows: Indices, shape: tuple[int, ...]) -> Iterator[Indices]:
    """Yield the rows in consecutive blocks of images of this shape with at most BLOCK values, but at least a row.

    Larger blocks are multiples of 512 rows, so that batches within them are the same as without blocks.
    """
    step = max(1, BLOCK // math.prod(shape))
    if step > BATCHES:
        step -= step % BATCHES
    for start in range(0, len(rows), step):
        yield rows[start : start + step]


def rows_at_once(shape: tuple[int, ...], limit: int, values: int | None = None) -> int:
    """Return how many images are processed at a time: at most `limit`, and at most so many values (None: BLOCK)."""
    return max(1, min(limit, (values or BLOCK) // math.prod(shape)))


TOGETHER = 1 << 18  # pixels converted at a time; few enough that they fit into a processor cache as wide numbers


@dataclass(frozen=True, eq=False)
class Images:
    """Training and test splits of images of one shape. The arrays are read-only and loaded once per process.

    Training images may belong together, such as those of one patient, and may derive from other images. In that case,
    `train_groups` contains the group number of each image, and `train_origins` the SHA-256 of its original (of its
    pixels, as in `tasks.datasets.mixtures`). They are None if every image is its own group, or if no image derives from
    another. `notes` are one-line warnings from the reader, for `tasks.datasets.notes`.

    The records of a table have float32 features instead of pixels, whose names are in `features`. `encoding` converts
    other rows of such a table in the same way, and `train_file_rows` are the rows of the file, counted from 0.

    `train_hashes` holds the SHA-256 of each encoded training image, if all are a user's files without planted images.
    """

    train_images: Pixels
    train_labels: Labels
    test_images: Pixels
    test_labels: Labels
    classes: int
    names: tuple[str, ...] = ()  # class names, if any
    train_groups: NDArray[np.int64] | None = None  # (n,)
    train_origins: NDArray[np.uint8] | None = None  # (n, 32)
    notes: tuple[str, ...] = ()
    features: tuple[str, ...] = ()  # names of a table's features
    encoding: TableEncoding | None = None
    train_file_rows: NDArray[np.int64] | None = None  # (n,)
    train_hashes: NDArray[np.uint8] | None = None  # (n, 32)

    def __post_init__(self) -> None:
        if self.names and len(self.names) != self.classes:
            raise DatasetError(f"there are {len(self.names)} names for {self.classes} classes")
        _check_split("train", self.train_images, self.train_labels, self.classes)
        _check_split("test", self.test_images, self.test_labels, self.classes)
        if self.train_images.shape[1:] != self.test_images.shape[1:]:
            shapes = f"{self.train_images.shape[1:]} and {self.test_images.shape[1:]}"
            raise DatasetError(f"training and test images differ in shape: {shapes}")
        check_about("groups", self.train_groups, (len(self.train_images),))
        check_about("origins", self.train_origins, (len(self.train_images), 32))
        check_about("file rows", self.train_file_rows, (len(self.train_images),))
        check_about("hashes", self.train_hashes, (len(self.train_images), 32))
        required_arrays = (self.train_images, self.train_labels, self.test_images, self.test_labels)
        about = (self.train_groups, self.train_origins, self.train_file_rows, self.train_hashes)
        for array in (*required_arrays, *about):
            if array is not None:
                array.setflags(write=False)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of every image."""
        height, width, channels = self.train_images.shape[1:]
        return height, width, channels

    @property
    def is_table(self) -> bool:
        """Whether these are records of a table rather than images."""
        return is_table(self.train_images)

    def file_rows(self, rows: Labels) -> Labels:
        """Return the numbers that a user's program has for these training rows: for a table, the rows of its file."""
        if self.train_file_rows is None:
            return rows
        file_rows: Labels = self.train_file_rows[rows]
        return file_rows

    @property
    def file_row_count(self) -> int:
        """How many records a user's program numbers: all rows of a table's file, or all training images."""
        if self.train_file_rows is None:
            return len(self.train_images)
        return len(self.train_images) + len(self.test_images)

    @property
    def train(self) -> InMemory:
        return InMemory(self.train_images, self.train_labels)

    @property
    def test(self) -> InMemory:
        return InMemory(self.test_images, self.test_labels)


def is_table(images: NDArray[Any]) -> bool:
    """Return whether these are records of a table, (n, 1, 1, features), rather than images."""
    return images.dtype == np.float32 and images.ndim == 4 and images.shape[1:3] == ONE_PIXEL


def fractions(images: NDArray[Any]) -> NDArray[np.float32]:
    """Return images in [0, 1]. The features of a table stay unchanged."""
    if is_table(images):
        return images
    scaled: NDArray[np.float32] = np.divide(images, 255, dtype=np.float32)
    return scaled


def _check_split(name: str, images: Pixels, labels: Labels, classes: int) -> None:
    """Raise DatasetError unless images are uint8 (n, h, w, 1 or 3), or a table, with n labels below `classes`."""
    is_image = images.dtype == np.uint8 and images.ndim == 4 and images.shape[3] in (1, 3)
    if not is_image and not is_table(images):
        raise DatasetError(f"{name} images are {images.dtype} {images.shape}; expected uint8 (n, h, w, 1 or 3)")
    if labels.dtype != np.int64 or labels.shape != images.shape[:1]:
        raise DatasetError(f"{name} labels are {labels.dtype} {labels.shape}; expected int64 ({len(images)},)")
    if not len(images):
        raise DatasetError(f"the {name} split has no images")
    if labels.min() < 0 or labels.max() >= classes:
        raise DatasetError(f"{name} labels range from {labels.min()} to {labels.max()}; expected 0 to {classes - 1}")


def check_about(name: str, values: NDArray[Any] | None, shape: tuple[int, ...]) -> None:
    """Raise DatasetError unless the values, if any, have this shape, with one entry per training image."""
    if values is not None and values.shape != shape:
        raise DatasetError(f"the {name} of the training images are {values.shape}; expected {shape}")


def luma(images: Pixels) -> Pixels:
    """Convert RGB images (n, h, w, 3) to grey images (n, h, w, 1): 0.299 R + 0.587 G + 0.114 B, rounded.

    ITU-R BT.601-7, section 2.5.1, with weights in 65536ths as in Pillow.
    """
    red, green, blue = (images[..., channel].astype(np.uint32) for channel in range(3))
    return ((19595 * red + 38470 * green + 7471 * blue + 32768) >> 16).astype(np.uint8)[..., None]


def as_shape(images: Pixels, shape: tuple[int, int, int]) -> Pixels:
    """Convert images (n, h, w, c) to another (height, width, channels): to grey, then to size, then to RGB.

    Resizing uses Pillow's bilinear filter with antialiasing. Images that already have this shape are returned
    unchanged. Memory use is little more than that of the result.
    """
    height, width, channels = shape
    if channels not in (1, 3):
        raise ValueError(f"channels is {channels}; it must be 1 or 3")
    if images.shape[1:] == shape:
        return images
    out = np.empty((len(images), *shape), np.uint8)
    step = max(1, TOGETHER // max(1, images.shape[1] * images.shape[2]))
    for first in range(0, len(images), step):
        out[first : first + step] = _convert_shape(images[first : first + step], height, width, channels)
    return out


def _convert_shape(images: Pixels, height: int, width: int, channels: int) -> Pixels:
    if channels == 1 and images.shape[3] == 3:
        images = luma(images)
    if images.shape[1:3] != (height, width):
        images = resize_images(images, height, width)
    if channels == 3 and images.shape[3] == 1:
        images = np.repeat(images, 3, axis=3)
    return images


def resize_images(images: Pixels, height: int, width: int) -> Pixels:
    """Resize images (n, h, w, c) to another height and width."""
    from PIL import Image

    out = np.empty((len(images), height, width, images.shape[3]), np.uint8)
    for index, image in enumerate(images):
        picture = Image.fromarray(image[..., 0] if image.shape[2] == 1 else image)
        scaled = np.asarray(picture.resize((width, height), Image.Resampling.BILINEAR))
        out[index] = scaled.reshape(height, width, -1)
    return out
