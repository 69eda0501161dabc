"""Labelled pictures of any size, with the boxes around their objects where they are known; and the pictures as squares.

Trainings hold all squares: in memory, or mapped from a file of the cache folder. The file is NumPy's and is named after
the hash of the data set, the rows and the side. It is written aside and renamed, by one process while others wait, and
may be deleted at any time.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tasks.datasets.dataset import DatasetError
from tasks.datasets.images import Indices, Labels, Pixels, as_shape
from tasks.datasets.picture_cache import alone, cache_folder
from tasks.datasets.pictures import MANY_THREADS, map_in_threads
from tasks.datasets.source import digest_of
from tasks.worker import hardware

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

    @property
    def first_copies(self) -> NDArray[np.int64]:
        """(n,): the first picture with the same content as each, its own row if there is none before it."""

    def picture(self, row: int) -> Pixels:
        """One picture whole, (height, width, 3). DatasetError where it cannot be read."""

    def squares(self, rows: Indices, side: int) -> Pixels:
        """Whole pictures brought to squares, (rows, side, side, 3): what trainings hold.

        Bilinear with antialiasing; a picture that is no square is stretched, which `sizes` undoes.
        """


SQUARES_RULE = "squares 1"
SHARE = 0.5  # of the available memory, that squares may take
PORTION = 1024  # pictures in memory at a time when a file is written


class Decodable(Protocol):
    def picture(self, row: int) -> Pixels: ...


def load_squares(pictures: Decodable, rows: Indices, side: int, digest: str) -> Pixels:
    """The whole pictures stretched to (rows, side, side, 3), bilinear with antialiasing.

    Read-only and mapped from a file where they would take more than half of the memory that can be had, and the data
    set has a digest. DatasetError where the file cannot be written. ValueError for a side below 1.
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
    """The squares in this file, which is written where it is missing or not whole."""
    shape = (len(rows), side, side, 3)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with alone(path):
            there = _whole_file(path, shape)
            if there is None:
                _write_squares(path, pictures, rows, shape)
                there = _whole_file(path, shape)
    except OSError as error:
        raise DatasetError(
            f"the cache {path} cannot be written: {error.strerror or error}; set ENGRAM_CACHE to a folder with room"
        ) from None
    if there is None:
        raise DatasetError(f"the cache {path} is damaged again right after it was written")
    return there


def _whole_file(path: Path, shape: tuple[int, int, int, int]) -> Pixels | None:
    """The mapped file; None where it is missing or another one."""
    with suppress(OSError, ValueError, EOFError):
        there: Pixels = np.load(path, mmap_mode="r", allow_pickle=False)
        if there.shape == shape and there.dtype == np.uint8:
            return there
    return None


def _write_squares(path: Path, pictures: Decodable, rows: Indices, shape: tuple[int, int, int, int]) -> None:
    for left in path.parent.glob(f".{path.name}.*"):  # of a killed process: only one writes at a time
        left.unlink(missing_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with aside.open("wb") as file:
            header = {"descr": "|u1", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            for some in _row_portions(rows):
                part = np.empty((len(some), *shape[1:]), np.uint8)
                fill_squares(part, pictures, some)
                file.write(part.data)  # a full disk is an OSError here, and not a signal as in a mapped file
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def fill_squares(out: Pixels, pictures: Decodable, rows: Indices) -> None:
    """Fill in the squares (rows, side, side, 3), decoded by a few threads."""

    def bring(at: int) -> None:
        out[at] = as_shape(pictures.picture(int(rows[at]))[None], out.shape[1:])[0]

    for _ in map_in_threads(bring, range(len(rows)), MANY_THREADS):
        pass


def _row_portions(rows: Indices) -> Sequence[Indices]:
    return [rows[first : first + PORTION] for first in range(0, len(rows), PORTION)]
