"""Read encoded images from Parquet files by row, for files larger than memory.

A Parquet file is compressed by row group, so that reading one row unpacks its group. Small groups are unpacked together
and large ones alone. The last ones are kept, so that rows in the order of the files are unpacked once. If rows are read
in another order, such as a random one, groups would be unpacked again for every row. The third time, the images of the
whole file are therefore copied to an unnamed file in the cache folder, which disappears with the process.
"""

from __future__ import annotations

import os
import tempfile
import threading
from bisect import bisect_right
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.datasets.cache_folder import cache_folder
from tasks.datasets.dataset import DatasetError
from tasks.datasets.image_columns import encoded_image, encoded_images
from tasks.datasets.labelled import Labelled
from tasks.worker.size_limits import TooLarge, read_row_groups

TOGETHER = 1 << 23  # bytes that are unpacked at a time, or one row group
KEPT = 1 << 28  # bytes of unpacked images that are kept
MOST_UNPACKINGS = 2  # of a unit: to hash the images in order, and to read them


@dataclass(frozen=True)
class Unit:
    """Consecutive row groups of a file that are unpacked together: their numbers, and the number of the first row."""

    first: int
    last: int  # exclusive
    row: int


@dataclass(eq=False)
class GroupedImages:
    """The images in Parquet files, by file and row. `columns` names the image column of each file."""

    columns: Mapping[Path, str]
    _units: dict[Path, list[Unit]] = field(default_factory=dict)
    _unpackings: Counter[tuple[Path, int]] = field(default_factory=Counter)
    _copies: dict[Path, CopiedImages] = field(default_factory=dict)
    _kept: OrderedDict[tuple[Path, int], Future[pa.ChunkedArray]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _copying: threading.Lock = field(default_factory=threading.Lock)

    def read(self, entry: Labelled) -> bytes:
        """Return an encoded image. Raises DatasetError if it is missing or cannot be read."""
        assert entry.row is not None
        copied = self._copies.get(entry.path)
        if copied is not None:
            return copied.read(entry)
        units = self._units_of(entry.path)
        number = bisect_right(units, entry.row, key=lambda unit: unit.row) - 1
        column = self._unpacked(entry.path, number)
        if column is None:
            return self._copy(entry.path).read(entry)
        row = entry.row - units[number].row
        if row >= len(column):
            raise changed(entry.path)
        return encoded_image(column, row, entry)

    def _copy(self, path: Path) -> CopiedImages:
        """Copy the images of a file. If several threads request it, one of them copies them."""
        with self._copying:
            if path not in self._copies:
                units = self._units_of(path)
                self._copies[path] = CopiedImages.write(self._unpack(path, unit) for unit in units)
            return self._copies[path]

    def _units_of(self, path: Path) -> list[Unit]:
        if path not in self._units:
            self._units[path] = read_units(path)
        return self._units[path]

    def _unpacked(self, path: Path, number: int) -> pa.ChunkedArray | None:
        """Return the images of a unit, or None if it has been unpacked too often. One of several threads unpacks it."""
        key = path, number
        with self._lock:
            future = self._kept.get(key)
            is_new = future is None
            if future is None:
                if self._unpackings[key] == MOST_UNPACKINGS:
                    return None
                self._unpackings[key] += 1
                future = self._kept[key] = Future()
            self._kept.move_to_end(key)
        if is_new:
            try:
                future.set_result(self._unpack(path, self._units[path][number]))
            except BaseException as error:
                future.set_exception(error)
            self._drop_oldest()
        return future.result()

    def _unpack(self, path: Path, unit: Unit) -> pa.ChunkedArray:
        column = self.columns[path]
        try:
            table = read_row_groups(path, list(range(unit.first, unit.last)), [column])
        except (OSError, pa.ArrowException, TooLarge) as error:
            raise DatasetError(f"{path} cannot be read: {' '.join(str(error).split())}") from None
        return encoded_images(table.column(column))

    def _drop_oldest(self) -> None:
        with self._lock:
            sizes = []
            for future in self._kept.values():
                is_read = future.done() and future.exception() is None
                sizes.append(future.result().nbytes if is_read else 0)
            excess = sum(sizes) - KEPT
            for key, size in zip(list(self._kept)[:-1], sizes, strict=False):
                if excess > 0 and self._kept[key].done():
                    del self._kept[key]
                    excess -= size


@dataclass(frozen=True, eq=False)
class CopiedImages:
    """The images of a file in an unnamed file, and where each begins. Rows without an image are empty."""

    file: BinaryIO
    begins: NDArray[np.int64]  # (n + 1,)

    @staticmethod
    def write(columns: Iterable[pa.ChunkedArray]) -> CopiedImages:
        """Copy these columns of images. Raises DatasetError if the cache folder cannot be written."""
        folder = cache_folder()
        sizes = [0]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = cast("BinaryIO", tempfile.TemporaryFile(dir=folder))  # noqa: SIM115 -- read later
            for column in columns:
                for image in column:
                    encoded = image.as_py() or b""
                    file.write(encoded)
                    sizes.append(len(encoded))
            file.flush()
        except OSError as error:
            raise DatasetError(
                f"the cache {folder} cannot be written: {error.strerror or error}; set ENGRAM_CACHE to a folder with "
                "free space"
            ) from None
        return CopiedImages(file, np.cumsum(sizes))

    def read(self, entry: Labelled) -> bytes:
        assert entry.row is not None
        if entry.row + 1 >= len(self.begins):
            raise changed(entry.path)
        begin, end = self.begins[entry.row : entry.row + 2].tolist()
        return os.pread(self.file.fileno(), end - begin, begin)


def changed(path: Path) -> DatasetError:
    return DatasetError(f"{path} has changed since its labels were read; start the run again")


def read_units(path: Path) -> list[Unit]:
    """Return the units of a file. Raises DatasetError if its footer cannot be read."""
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_metadata(path)
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        counts = [group.num_rows for group in groups]
        sizes = [group.total_byte_size for group in groups]
    except (OSError, pa.ArrowException) as error:
        raise DatasetError(f"{path} cannot be read: {' '.join(str(error).split())}") from None
    rows = [0, *accumulate(counts)]
    units = []
    first = 0
    unpacked = 0
    for number, size in enumerate(sizes):
        if number > first and unpacked + size > TOGETHER:
            units.append(Unit(first, number, rows[first]))
            first = number
            unpacked = 0
        unpacked += size
    units.append(Unit(first, len(sizes), rows[first]))
    return units
