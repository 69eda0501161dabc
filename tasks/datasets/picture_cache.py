"""Decoded images in memory-mapped Arrow files on disk, for data sets larger than memory.

Each file is named after the digest of its data set. Files are in the folder ENGRAM_CACHE or, if that is not set, in
`engram` in the user's cache folder. A file contains the rows of the training split followed by those of the test split.
One process writes it under another name and renames it while the other processes wait. An incomplete file is rewritten.
Every row has a checksum, which is verified when a process first reads the row. Files may be deleted at any time.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.datasets.cache_folder import cache_folder
from tasks.datasets.dataset import DatasetError
from tasks.datasets.images import Indices, Labels, Opened, Pixels, Splits

RULE = "engram pictures 1"
TOGETHER = 1 << 24  # bytes of pixels in one part of a file


class Damaged(Exception):
    """A file differs from what was written to it."""


def path_of(digest: str) -> Path:
    return cache_folder() / f"{digest}.arrow"


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
    """An open file: the pixels of each part (rows, h w c), and the labels and CRC-32 checksums of all rows."""

    about: dict[str, Any]
    pixels: tuple[NDArray[np.uint8], ...]  # all parts except the last have the same number of rows
    labels: Labels
    checksums: NDArray[np.uint32]
    checked: NDArray[np.bool_]  # rows whose checksum has been verified


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
                return _map_file(self.path, self.digest)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with alone(self.path):
                if damaged is None:
                    with suppress(Damaged, OSError):  # another process may have just written it
                        return _map_file(self.path, self.digest)
                write(self.path, self.digest, self.pictures())
            return _map_file(self.path, self.digest)
        except OSError as error:
            raise DatasetError(
                f"the cache {self.path} cannot be written: {error.strerror or error}; "
                "set ENGRAM_CACHE to a folder with free space"
            ) from None
        except Damaged as error:
            raise DatasetError(f"the cache {self.path} is damaged again right after it was written: {error}") from None


@dataclass(frozen=True, eq=False)
class MappedRows:
    """A range of rows in a mapped file: `count` rows, starting with `first`."""

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
    rows_per_part = len(parts.pixels[0])
    out = np.empty((len(rows), parts.pixels[0].shape[1]), np.uint8)
    in_part = rows // rows_per_part
    for part in np.unique(in_part):
        is_in_part = in_part == part
        out[is_in_part] = parts.pixels[part][rows[is_in_part] - part * rows_per_part]
    for index in np.flatnonzero(~parts.checked[rows]):
        if zlib.crc32(out[index]) != parts.checksums[rows[index]]:
            raise Damaged(f"row {rows[index]}")
    parts.checked[rows] = True
    return out


def _map_file(path: Path, digest: str) -> Parts:
    """Map a file.

    Raises Damaged if it is incomplete or belongs to another data set, and OSError if it does not exist.
    """
    try:
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        about = json.loads(reader.schema.metadata[b"about"])
        if (about["rule"], about["digest"]) != (RULE, digest):
            raise Damaged(f"it belongs to {about['rule']} {about['digest']}")
        parts = []
        for number in range(reader.num_record_batches):
            parts.append(_part_of(*reader.get_batch_with_custom_metadata(number)))
        rows = about["train"] + about["test"]
        pixels, labels, checksums = zip(*parts, strict=True)
        complete_parts = Parts(about, pixels, np.concatenate(labels), np.concatenate(checksums), np.zeros(rows, bool))
    except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise Damaged(" ".join(str(error).split())) from None
    if len(complete_parts.labels) != rows:
        raise Damaged(f"it has {len(complete_parts.labels)} rows of {rows}")
    return complete_parts


def _part_of(
    batch: pa.RecordBatch, metadata: dict[bytes, bytes]
) -> tuple[NDArray[np.uint8], Labels, NDArray[np.uint32]]:
    """Return a part's pixels (without copying), labels and checksums. Raises Damaged if labels or checksums differ."""
    labels = np.array(batch.column("label"))
    checksums = np.array(batch.column("crc32"))
    if int(metadata[b"crc32"]) != checksum(labels, checksums):
        raise Damaged("labels or checksums")
    column = batch.column("pixels")
    buffer = np.frombuffer(column.buffers()[1], np.uint8)
    return buffer[: len(column) * column.type.byte_width].reshape(len(column), -1), labels, checksums


def checksum(labels: Labels, checksums: NDArray[np.uint32]) -> int:
    """Return the CRC-32 of a part's labels and checksums."""
    return zlib.crc32(checksums.tobytes(), zlib.crc32(labels.tobytes()))


def write(path: Path, digest: str, pictures: Splits) -> None:
    """Write the file atomically. Raises OSError if the disk is full."""
    train = pictures.train
    test = pictures.test
    width = math.prod(pictures.shape)
    about = {"rule": RULE, "digest": digest, "shape": pictures.shape, "train": len(train), "test": len(test)}
    about |= {"classes": pictures.classes, "names": pictures.names}
    fields = [("pixels", pa.binary(width)), ("label", pa.int64()), ("crc32", pa.uint32())]
    schema = pa.schema(fields, metadata={"about": json.dumps(about)})
    for stale_file in path.parent.glob(
        f".{path.name}.*"
    ):  # left by a killed process, since only one process writes at a time
        stale_file.unlink(missing_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with pa.OSFile(str(aside), "wb") as file, pa.ipc.new_file(file, schema) as writer:
            for images, labels in parts_of(pictures, max(1, TOGETHER // width)):
                checksums = np.array([zlib.crc32(image.tobytes()) for image in images], np.uint32)
                pixels = pa.py_buffer(np.ascontiguousarray(images))
                column = pa.Array.from_buffers(pa.binary(width), len(images), [None, pixels])
                batch = pa.record_batch([column, pa.array(labels), pa.array(checksums)], schema=schema)
                writer.write_batch(batch, custom_metadata={"crc32": str(checksum(labels, checksums))})
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


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
