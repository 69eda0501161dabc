"""Labelled images of any size with known boxes around their objects, and the same images resized to squares.

Training uses all squares, either in memory or mapped from a file in the cache folder. The file is in NumPy format, and
its name is a hash of the data set, the rows and the side. One process writes it under another name and renames it while
the other processes wait. It may be deleted at any time.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from tasks.datasets.cache_folder import cache_folder, make_room, open_in_use
from tasks.datasets.dataset import DatasetError
from tasks.datasets.images import Indices, Labels, Pixels, as_shape
from tasks.datasets.picture_cache import alone
from tasks.datasets.pictures import MANY_THREADS, map_in_threads
from tasks.datasets.source import digest_of
from tasks.worker import hardware

# (m, 4): left, top, right and bottom of each box in pixels; right and bottom are exclusive. Boxes may exceed the image.
Boxes = NDArray[np.int32]
NO_BOXES: Boxes = np.zeros((0, 4), np.int32)
NO_BOXES.setflags(write=False)


class BoxedPictures(Protocol):
    """Labelled images in order of their ids. Hashed by identity, not by content."""

    @property
    def ids(self) -> tuple[str, ...]:
        """The image ids (n,), ascending and distinct, independent of where the files are."""

    @property
    def labels(self) -> Labels:
        """The labels (n,), each in [0, len(names))."""

    @property
    def names(self) -> tuple[str, ...]:
        """The class names."""

    @property
    def boxes(self) -> Sequence[Boxes]:
        """The boxes of each image, with shape (0, 4) if none are known."""

    @property
    def sizes(self) -> NDArray[np.int32]:
        """The height and width of each image in pixels, (n, 2)."""

    @property
    def given_parts(self) -> tuple[str, ...] | None:
        """The role of each image for a third-party model, or None if no table defines it."""

    @property
    def is_validation(self) -> NDArray[np.bool_]:
        """Whether each image (n,) is in the data set's own validation set. All False if there is none."""

    @property
    def first_copies(self) -> NDArray[np.int64]:
        """The first image (n,) with the same content as each image."""

    def picture(self, row: int) -> Pixels:
        """Return one full image, (height, width, 3). Raises DatasetError if it cannot be read."""

    def squares(self, rows: Indices, side: int) -> Pixels:
        """Resize full images to squares for training, (rows, side, side, 3).

        Resizing is bilinear with antialiasing. Other aspect ratios are stretched, which `sizes` allows callers to undo.
        """


SQUARES_RULE = "squares 1"
SHARE = 0.5  # fraction of the available memory that squares may use
PORTION = 1024  # images in memory at a time while a file is written


_in_use: dict[Path, BinaryIO] = {}  # open files, which are not removed to make room


class Decodable(Protocol):
    def picture(self, row: int) -> Pixels: ...


def load_squares(pictures: Decodable, rows: Indices, side: int, digest: str) -> Pixels:
    """Resize full images to squares, (rows, side, side, 3), bilinearly with antialiasing.

    The result is read-only. It is mapped from a file if it would use more than half of the available memory and the
    data set has a digest. Raises DatasetError if the file cannot be written, and ValueError for a side below 1.
    """
    if side < 1:
        raise ValueError(f"side is {side}; it must be at least 1")
    if not digest or len(rows) * side * side * 3 <= SHARE * hardware.available_memory():
        out = np.empty((len(rows), side, side, 3), np.uint8)
        fill_squares(out, pictures, rows)
        return out
    return _map_squares(_squares_path(digest, rows, side), pictures, rows, side)


def _squares_path(digest: str, rows: Indices, side: int) -> Path:
    name = digest_of(SQUARES_RULE, [digest.encode(), np.asarray(rows, "<i8").tobytes(), str(side).encode()])
    return cache_folder() / f"{name}.squares.npy"


def _map_squares(path: Path, pictures: Decodable, rows: Indices, side: int) -> Pixels:
    """Map the squares from this file, writing it first if it is missing or incomplete."""
    shape = (len(rows), side, side, 3)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with alone(path):
            squares = _whole_file(path, shape)
            if squares is None:
                make_room(math.prod(shape))
                _write_squares(path, pictures, rows, shape)
                squares = _whole_file(path, shape)
    except OSError as error:
        raise DatasetError(
            f"the cache {path} cannot be written: {error.strerror or error}; "
            "set ENGRAM_CACHE to a folder with free space"
        ) from None
    if path not in _in_use:
        with suppress(OSError):
            _in_use[path] = open_in_use(path)
    if squares is None:
        raise DatasetError(f"the cache {path} is damaged again right after it was written")
    return squares


def _whole_file(path: Path, shape: tuple[int, int, int, int]) -> Pixels | None:
    """Map the file, or return None if it is missing or has another shape."""
    with suppress(OSError, ValueError, EOFError):
        squares: Pixels = np.load(path, mmap_mode="r", allow_pickle=False)
        if squares.shape == shape and squares.dtype == np.uint8:
            return squares
    return None


def _write_squares(path: Path, pictures: Decodable, rows: Indices, shape: tuple[int, int, int, int]) -> None:
    for stale_file in path.parent.glob(
        f".{path.name}.*"
    ):  # left by a killed process, since only one process writes at a time
        stale_file.unlink(missing_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with aside.open("wb") as file:
            header = {"descr": "|u1", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            for portion in _row_portions(rows):
                part = np.empty((len(portion), *shape[1:]), np.uint8)
                fill_squares(part, pictures, portion)
                file.write(part.data)  # a full disk raises OSError here, instead of a signal as in a mapped file
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def fill_squares(out: Pixels, pictures: Decodable, rows: Indices) -> None:
    """Decode the images in a few threads and write them to `out` as squares (rows, side, side, 3)."""

    def bring(index: int) -> None:
        out[index] = as_shape(pictures.picture(int(rows[index]))[None], out.shape[1:])[0]

    for _ in map_in_threads(bring, range(len(rows)), MANY_THREADS):
        pass


def _row_portions(rows: Indices) -> Sequence[Indices]:
    return [rows[first : first + PORTION] for first in range(0, len(rows), PORTION)]
