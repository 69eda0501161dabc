"""Decoded images in files on disk, for data sets larger than memory.

Each file is named after the digest of its data set and lies in the cache folder (`tasks.datasets.cache_folder`). It
contains the pixels of the training split followed by those of the test split, then all labels and checksums. One
process writes it under another name and renames it while the other processes wait. An incomplete file is rewritten.
Every row has a checksum, which is verified when a process first reads the row. Files may be deleted at any time.

All processes of a machine share the file through the page cache of the operating system. They read rows from it instead
of mapping it into memory, because mapped pages would count as memory of each process, and a read error would end it.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from tasks.datasets.cache_folder import cache_folder, make_room, open_in_use
from tasks.datasets.dataset import DatasetError
from tasks.datasets.images import Indices, Labels, Opened, Pixels, Splits
from tasks.datasets.pictures import THREADS

RULE = "engram pictures 2"
TOGETHER = 1 << 24  # bytes of pixels that are decoded and written at a time
ALONE = 1 << 20  # bytes of pixels that one thread reads faster than several
END = struct.Struct("<II8s")  # length and CRC-32 of the labels, checksums and description that precede it
MAGIC = b"ENGRAMP2"


class Damaged(Exception):
    """A file differs from what was written to it."""


def path_of(digest: str) -> Path:
    return cache_folder() / f"{digest}.pixels"


def open_cache(digest: str, pictures: Callable[[], Splits]) -> Opened:
    """Open the images of the data set with this digest for reading by rows.

    `pictures` is called only if there is no complete file. Raises DatasetError if the file cannot be written.
    """
    file = CacheFile(path_of(digest), digest, pictures)
    about = file.parts().about
    train = int(about["train"])
    test = int(about["test"])
    splits = MappedRows(file, 0, train), MappedRows(file, train, test)
    return Opened(*splits, int(about["classes"]), tuple(about["names"]))


@dataclass(frozen=True, eq=False)
class Parts:
    """An open file: its description, and the labels and CRC-32 checksums of all rows."""

    file: BinaryIO
    about: dict[str, Any]
    labels: Labels
    checksums: NDArray[np.uint32]
    checked: NDArray[np.bool_]  # rows whose checksum has been verified

    @property
    def width(self) -> int:
        """The number of bytes of each row."""
        return math.prod(self.about["shape"])


@dataclass(eq=False)
class CacheFile:
    """A cache file, which is written if it is missing and rewritten if it is damaged."""

    path: Path
    digest: str
    pictures: Callable[[], Splits]
    _parts: Parts | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def parts(self) -> Parts:
        with self._lock:
            if self._parts is None:
                self._parts = self._make(None)
            return self._parts

    def renew(self, damaged: Parts) -> Parts:
        """Rewrite the file, unless another caller has already done so since the `damaged` parts were read."""
        with self._lock:
            if self._parts is damaged:
                self._parts = self._make(damaged)
            assert self._parts is not None
            return self._parts

    def _make(self, damaged: Parts | None) -> Parts:
        if damaged is None:
            with suppress(Damaged, OSError):
                return _open_file(self.path, self.digest)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with alone(self.path):
                if damaged is None:
                    with suppress(Damaged, OSError):  # another process may have just written it
                        return _open_file(self.path, self.digest)
                write(self.path, self.digest, self.pictures())
            return _open_file(self.path, self.digest)
        except OSError as error:
            raise DatasetError(
                f"the cache {self.path} cannot be written: {error.strerror or error}; "
                "set ENGRAM_CACHE to a folder with free space"
            ) from None
        except Damaged as error:
            raise DatasetError(f"the cache {self.path} is damaged again right after it was written: {error}") from None


@dataclass(frozen=True, eq=False)
class MappedRows:
    """A range of rows in a cache file: `count` rows, starting with `first`."""

    file: CacheFile
    first: int
    count: int

    @property
    def shape(self) -> tuple[int, int, int]:
        height, width, channels = self.file.parts().about["shape"]
        return height, width, channels

    @property
    def labels(self) -> Labels:
        return self.file.parts().labels[self.first : self.first + self.count]

    def __len__(self) -> int:
        return self.count

    def pixels(self, rows: Indices) -> Pixels:
        file_rows = np.asarray(rows, np.int64) + self.first
        parts = self.file.parts()
        try:
            pixels = _gather_rows(parts, file_rows)
        except Damaged:
            pixels = _gather_rows(self.file.renew(parts), file_rows)
        return pixels.reshape(len(file_rows), *self.shape)


def _gather_rows(parts: Parts, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Return the pixels of these rows (rows, h w c). Raises Damaged if a row differs from what was written."""
    out = np.empty((len(rows), parts.width), np.uint8)
    if out.nbytes <= ALONE:
        _read_rows(parts, rows, out)
        return out
    step = math.ceil(len(rows) / THREADS)
    portions = [slice(first, first + step) for first in range(0, len(rows), step)]
    for _ in _readers().map(lambda portion: _read_rows(parts, rows[portion], out[portion]), portions):
        pass
    return out


@cache
def _readers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS)


def _read_rows(parts: Parts, rows: NDArray[np.int64], out: NDArray[np.uint8]) -> None:
    """Read consecutive rows together into `out`, and verify those that were not read before."""
    ends = [*(np.flatnonzero(np.diff(rows) != 1) + 1).tolist(), len(rows)]
    start = 0
    for end in ends:
        if start < end:
            _read_at(parts.file, int(rows[start]) * parts.width, out[start:end])
        start = end
    for index in np.flatnonzero(~parts.checked[rows]):
        if zlib.crc32(out[index].data) != parts.checksums[rows[index]]:
            raise Damaged(f"row {rows[index]}")
    parts.checked[rows] = True


def _read_at(file: BinaryIO, offset: int, out: NDArray[np.uint8]) -> None:
    """Fill `out` from this offset. Raises Damaged if the file is too short or cannot be read."""
    buffer = out.data.cast("B")
    done = 0
    while done < len(buffer):
        try:
            count = os.preadv(file.fileno(), [buffer[done:]], offset + done)
        except OSError as error:
            raise Damaged(error.strerror or str(error)) from None
        if not count:
            raise Damaged("it is too short")
        done += count


def _open_file(path: Path, digest: str) -> Parts:
    """Open a file.

    Raises Damaged if it is incomplete or belongs to another data set, and OSError if it does not exist.
    """
    file = open_in_use(path)
    size = os.fstat(file.fileno()).st_size
    try:
        length, checksum, magic = END.unpack(os.pread(file.fileno(), END.size, size - END.size))
        if magic != MAGIC or length > size:
            raise Damaged("its end is missing")
        end = bytearray(length)
        _read_at(file, size - END.size - length, np.frombuffer(end, np.uint8))
        if zlib.crc32(end) != checksum:
            raise Damaged("labels, checksums or description")
        rows = int.from_bytes(end[:8], "little")
        labels, checksums = (
            np.frombuffer(end, kind, rows, offset) for kind, offset in (("<i8", 8), ("<u4", 8 + 8 * rows))
        )
        about = json.loads(end[8 + 12 * rows :])
        if (about["rule"], about["digest"]) != (RULE, digest):
            raise Damaged(f"it belongs to {about['rule']} {about['digest']}")
    except (struct.error, OSError, KeyError, TypeError, ValueError) as error:
        raise Damaged(" ".join(str(error).split())) from None
    if size != rows * math.prod(about["shape"]) + length + END.size:
        raise Damaged(f"it has {size} bytes")
    return Parts(file, about, labels, checksums, np.zeros(rows, bool))


def write(path: Path, digest: str, pictures: Splits) -> None:
    """Write the file atomically. Raises OSError if the disk is full, and DatasetError if there is too little room."""
    train = pictures.train
    test = pictures.test
    about = {"rule": RULE, "digest": digest, "shape": pictures.shape, "train": len(train), "test": len(test)}
    about |= {"classes": pictures.classes, "names": pictures.names}
    for stale_file in path.parent.glob(
        f".{path.name}.*"
    ):  # left by a killed process, since only one process writes at a time
        stale_file.unlink(missing_ok=True)
    make_room(file_size(pictures))
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    all_labels: list[Labels] = []
    checksums: list[int] = []
    try:
        with aside.open("wb") as file:
            for images, labels in parts_of(pictures, max(1, TOGETHER // math.prod(pictures.shape))):
                contiguous = np.ascontiguousarray(images)
                file.write(contiguous.data)
                checksums += (zlib.crc32(image.data) for image in contiguous.reshape(len(contiguous), -1))
                all_labels.append(labels)
            count = len(checksums).to_bytes(8, "little")
            label_bytes = np.concatenate([*all_labels, np.zeros(0, np.int64)]).astype("<i8").tobytes()
            end = count + label_bytes + np.array(checksums, "<u4").tobytes() + json.dumps(about).encode()
            file.write(end + END.pack(len(end), zlib.crc32(end), MAGIC))
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def file_size(pictures: Splits) -> int:
    """Return the size of the file in bytes, without its short description."""
    return rows_size(pictures.shape, len(pictures.train) + len(pictures.test))


def rows_size(shape: tuple[int, int, int], count: int) -> int:
    """Return the bytes of `count` images of this shape with their labels and checksums."""
    return (math.prod(shape) + 12) * count


def parts_of(pictures: Splits, rows: int) -> Iterator[tuple[Pixels, Labels]]:
    """Yield the images and labels of the training split, then the test split, up to `rows` at a time."""
    train = pictures.train
    test = pictures.test
    labels = np.concatenate([train.labels, test.labels])
    for start in range(0, len(labels), rows):
        part_rows = np.arange(start, min(start + rows, len(labels)))
        is_training = part_rows < len(train)
        rows_of = ((train, part_rows[is_training]), (test, part_rows[~is_training] - len(train)))
        yield (
            np.concatenate([split.pixels(split_rows) for split, split_rows in rows_of if len(split_rows)]),
            labels[part_rows],
        )


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Lock the file against other writers on this machine.

    Without file locks, several processes may write, but all write the same content.
    """
    with open(path.with_suffix(".lock"), "ab") as lock:
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
