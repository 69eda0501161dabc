"""Read encoded images from Parquet files by row, for files larger than memory.

A Parquet file is compressed by row group, so that reading one row unpacks its group. Small groups are unpacked together
and large ones alone. The last ones are kept, so that rows in the order of the files are unpacked once.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

import pyarrow as pa

from tasks.datasets.dataset import DatasetError
from tasks.datasets.image_columns import encoded_image, encoded_images
from tasks.datasets.labelled import Labelled
from tasks.worker.size_limits import TooLarge, read_row_groups

TOGETHER = 1 << 23  # bytes that are unpacked at a time, or one row group
KEPT = 1 << 28  # bytes of unpacked images that are kept


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
    _kept: OrderedDict[tuple[Path, int], Future[pa.ChunkedArray]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self, entry: Labelled) -> bytes:
        """Return an encoded image. Raises DatasetError if it is missing or cannot be read."""
        assert entry.row is not None
        units = self._units_of(entry.path)
        number = bisect_right(units, entry.row, key=lambda unit: unit.row) - 1
        column = self._unpacked(entry.path, number)
        row = entry.row - units[number].row
        if row >= len(column):
            raise DatasetError(f"{entry.path} has changed since its labels were read; start the run again")
        return encoded_image(column, row, entry)

    def _units_of(self, path: Path) -> list[Unit]:
        if path not in self._units:
            self._units[path] = read_units(path)
        return self._units[path]

    def _unpacked(self, path: Path, number: int) -> pa.ChunkedArray:
        """Return the images of a unit. If several threads request it, one of them unpacks it."""
        key = path, number
        with self._lock:
            future = self._kept.get(key)
            is_new = future is None
            if future is None:
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
