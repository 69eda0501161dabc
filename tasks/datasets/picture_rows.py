"""Views of the images of a data set, which read pixels by rows, and arrays that may be larger than memory.

No view copies the images of a data set. `empty_rows` and `gather` return an array in memory up to `IN_MEMORY` bytes,
and otherwise one in an unnamed file in the cache folder, whose pages the operating system writes to disk if memory is
short.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tasks.datasets.cache_folder import cache_folder
from tasks.datasets.dataset import DatasetError
from tasks.datasets.images import Indices, InMemory, Labels, PictureRows, PictureSet, Pixels, as_shape, blocks

if TYPE_CHECKING:
    from tasks.datasets.feature_columns import TableEncoding

IN_MEMORY = 1 << 29  # bytes of the largest array that is kept in memory


class Sliceable(Protocol):
    """Images (n, h, w, c) of which functions read one slice after another: an array, or a view without one."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> Any:
        """Return the images in this slice as an array."""


@dataclass(frozen=True, eq=False)
class Selected:
    """Rows of a split as an array (n, h, w, c) that is read slice by slice."""

    split: PictureRows
    rows: Indices

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return len(self.rows), *self.split.shape

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, part: slice | Indices) -> Pixels:
        return self.split.pixels(self.rows[part])

    def select(self, part: slice | Indices) -> Selected:
        """Return some of the images, without reading them."""
        return Selected(self.split, self.rows[part])


@dataclass(frozen=True, eq=False)
class Converted:
    """Images of which every slice is converted when it is read, to images of the shape `image_shape`."""

    images: Sliceable
    convert: Callable[[Pixels, slice], Pixels]  # the images of a slice, and the slice
    image_shape: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self.images), *self.image_shape

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, part: slice) -> Pixels:
        return self.convert(self.images[part], part)


@dataclass(frozen=True, eq=False)
class ConvertedRows:
    """Selected images that are converted when they are read, in the same way whatever their rows."""

    images: Selected
    convert: Callable[[NDArray[Any]], NDArray[Any]]  # of images (n, ...)

    @cached_property
    def _example(self) -> NDArray[Any]:
        """A converted image, without reading one."""
        return self.convert(np.zeros((1, *self.images.shape[1:]), np.uint8))

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self.images), *self._example.shape[1:]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._example.dtype

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, part: slice | Indices) -> NDArray[Any]:
        return self.convert(self.images[part])

    def select(self, part: slice | Indices) -> ConvertedRows:
        """Return some of the images, without reading them."""
        return ConvertedRows(self.images.select(part), self.convert)

    def then(self, convert: Callable[[NDArray[Any]], NDArray[Any]]) -> ConvertedRows:
        """Return the images after another conversion."""
        first = self.convert
        return ConvertedRows(self.images, lambda images: convert(first(images)))


def reshape_images(images: Sliceable, shape: tuple[int, int, int]) -> Sliceable:
    """Return images in another (height, width, channels), converted as by `as_shape`."""
    if images.shape[1:] == shape:
        return images
    return Converted(images, lambda pixels, _: as_shape(pixels, shape), shape)


def whole_split(split: PictureRows, count: int = 0) -> Selected:
    """Return the first `count` images of a split (0: all)."""
    return Selected(split, np.arange(len(split))[: count or None])


@dataclass(frozen=True, eq=False)
class Subset:
    """Some rows of a split as a split of their own."""

    original: PictureRows
    rows: Indices

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.original.shape

    @cached_property
    def labels(self) -> Labels:
        labels: Labels = self.original.labels[self.rows]
        return labels

    def __len__(self) -> int:
        return len(self.rows)

    def pixels(self, rows: Indices) -> Pixels:
        return self.original.pixels(self.rows[rows])


@dataclass(frozen=True, eq=False)
class Concatenated:
    """Several splits of one shape, with consecutive row numbers."""

    parts: Sequence[PictureRows]

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.parts[0].shape

    @cached_property
    def labels(self) -> Labels:
        return np.concatenate([part.labels for part in self.parts])

    @cached_property
    def begins(self) -> NDArray[np.int64]:
        return np.cumsum([0, *map(len, self.parts)])

    def __len__(self) -> int:
        return int(self.begins[-1])

    def pixels(self, rows: Indices) -> Pixels:
        of_row = np.searchsorted(self.begins, rows, side="right") - 1
        numbers: list[int] = np.unique(of_row).tolist() or [0]
        if len(numbers) == 1:
            return self.parts[numbers[0]].pixels(rows - self.begins[numbers[0]])
        read = {number: self.parts[number].pixels(rows[of_row == number] - self.begins[number]) for number in numbers}
        out: Pixels = np.empty((len(rows), *self.shape), read[numbers[0]].dtype)
        for number, pixels in read.items():
            out[of_row == number] = pixels
        return out


@dataclass(frozen=True, eq=False)
class Replaced:
    """A split with other labels and, if there are `images` (n, h, w, c), with these at `rows` (n,), ascending."""

    original: PictureRows
    labels: Labels
    rows: Indices
    images: Pixels | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.original.shape

    def __len__(self) -> int:
        return len(self.original)

    def pixels(self, rows: Indices) -> Pixels:
        pixels = self.original.pixels(rows)
        if self.images is None or not len(self.rows):
            return pixels
        places = np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)
        is_replaced = self.rows[places] == rows
        pixels[is_replaced] = self.images[places[is_replaced]]
        return pixels


def replace_images(split: PictureRows, replaced: Mapping[int, Pixels]) -> PictureRows:
    """Return the split with these images (h, w, c) at their rows."""
    if not replaced:
        return split
    rows = np.array(sorted(replaced))
    return Replaced(split, split.labels, rows, np.stack([replaced[row] for row in rows.tolist()]))


@dataclass(frozen=True, eq=False)
class Altered:
    """A data set whose training split is replaced by one with the same rows."""

    original: PictureSet
    train: PictureRows

    @property
    def test(self) -> PictureRows:
        return self.original.test

    @property
    def classes(self) -> int:
        return self.original.classes

    @property
    def names(self) -> tuple[str, ...]:
        return self.original.names

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.original.shape

    @property
    def train_groups(self) -> NDArray[np.int64] | None:
        return self.original.train_groups

    @property
    def train_origins(self) -> NDArray[np.uint8] | None:
        return self.original.train_origins

    @property
    def train_hashes(self) -> NDArray[np.uint8] | None:
        return self.original.train_hashes

    @property
    def notes(self) -> tuple[str, ...]:
        return self.original.notes

    @property
    def features(self) -> tuple[str, ...]:
        return self.original.features

    @property
    def encoding(self) -> TableEncoding | None:
        return self.original.encoding

    @property
    def train_file_rows(self) -> NDArray[np.int64] | None:
        return self.original.train_file_rows

    @property
    def is_table(self) -> bool:
        return self.original.is_table

    def file_rows(self, rows: Labels) -> Labels:
        return self.original.file_rows(rows)

    @property
    def file_row_count(self) -> int:
        return self.original.file_row_count


def one_image(split: PictureRows, row: int) -> Pixels:
    """Return one image, (h, w, c)."""
    image: Pixels = split.pixels(np.array([row]))[0]
    return image


def is_in_memory(split: PictureRows) -> bool:
    """Return whether all images of a split are in memory, so that reading some of them costs only a copy."""
    match split:
        case InMemory():
            return True
        case Concatenated():
            return all(is_in_memory(part) for part in split.parts)
        case Replaced() | Subset():
            return is_in_memory(split.original)
    return False


def slices(images: Sliceable) -> Iterator[tuple[slice, Pixels]]:
    """Yield all images in blocks of bounded size, each with its position."""
    for rows in blocks(np.arange(len(images)), images.shape[1:]):
        part = slice(int(rows[0]), int(rows[-1]) + 1)
        yield part, images[part]


def hold(images: Sliceable) -> Sliceable:
    """Return the images in memory if they are small enough, so that they are read and converted only once."""
    if isinstance(images, np.ndarray) or images[:1].nbytes * len(images) > IN_MEMORY:
        return images
    return gather([images])


def gather(images: Sequence[Sliceable]) -> Pixels:
    """Return all images, concatenated, in memory or in a file."""
    first = images[0]
    dtype = first[:1].dtype
    out = empty_rows((sum(map(len, images)), *first.shape[1:]), dtype)
    start = 0
    for source in images:
        for part, pixels in slices(source):
            out[start + part.start : start + part.stop] = pixels
        start += len(source)
    return out


def empty_rows(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Return an array with arbitrary values, in memory or in an unnamed file, which disappears with the array.

    Raises DatasetError if there is no space for the file.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size <= IN_MEMORY or not size:
        return np.empty(shape, dtype)
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            _reserve(file.fileno(), size)
            mapped = mmap.mmap(file.fileno(), size)
    except OSError as error:
        raise DatasetError(
            f"{size / 1e9:.1f} GB of temporary data do not fit into {folder}: {error.strerror or error}; set "
            "ENGRAM_CACHE to a folder with free space"
        ) from None
    return np.frombuffer(mapped, dtype).reshape(shape)


def _reserve(descriptor: int, size: int) -> None:
    """Allocate the file's blocks, since a full disk would otherwise end the process when a page is written."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
    else:
        os.truncate(descriptor, size)
