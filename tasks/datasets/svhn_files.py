"""SVHN's MATLAB files read image by image, since the full set exceeds the memory of planning.

A file of format 5 consists of a header of 128 bytes and of elements: a tag (type and size, uint32 each) and its bytes.
An array is an element of the type 14, or of the type 15, which contains one that is compressed by zlib. It consists of
its class, shape, name and values, which are elements in turn, padded to 8 bytes. X is uint8 (32, 32, 3, n), the first
index varying fastest, so each image is 3,072 consecutive bytes: (channel, column, row).

MathWorks, "MAT-File Format", version 5.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np

from tasks.datasets.copies import contents
from tasks.datasets.dataset import DatasetError
from tasks.datasets.images import Labels, Pixels
from tasks.datasets.labelled import changed
from tasks.datasets.picture_index import Indexed, PictureIndex
from tasks.datasets.sequential_rows import SequentialRows
from tasks.datasets.source import EncodedSplits, Extent, Hashes, begin_digest, begin_part, digest_of

RULE = "svhn 1"
INDEX_RULE = "index of svhn 1"
CLASSES = 10
SHAPE = (32, 32, 3)
IMAGE = math.prod(SHAPE)  # bytes
TOGETHER = 4096  # images that are read at a time
HEADER = 128  # bytes
ORDERS = {b"IM": "<", b"MI": ">"}  # by the last bytes of the header
BYTES = 2  # types of elements
ARRAY = 14
COMPRESSED = 15
NAME = b"X"
CHUNK = 1 << 20  # compressed bytes that are read at a time
MOST_ABOUT = 1 << 10  # bytes of an array's class, shape or name


class _Bytes(Protocol):
    def read(self, count: int) -> bytes:
        """Return this many bytes. Raises EOFError if there are fewer."""

    def finish(self) -> None:
        """Check and skip the remaining bytes of the element."""


@dataclass(eq=False)
class _Plain:
    """An element that is not compressed."""

    file: BinaryIO

    def read(self, count: int) -> bytes:
        return _read(self.file, count)

    def finish(self) -> None:
        return


@dataclass(eq=False)
class _Inflated:
    """A compressed element. `left` is the number of its compressed bytes that are not read yet."""

    file: BinaryIO
    left: int
    inflater: Any = field(default_factory=zlib.decompressobj)

    def read(self, count: int) -> bytes:
        out = bytearray()
        while len(out) < count:
            packed = self.inflater.unconsumed_tail or self._next()
            if not packed and self.inflater.eof:
                raise EOFError("an array is too short")
            out += self.inflater.decompress(packed, count - len(out))
        return bytes(out)

    def _next(self) -> bytes:
        packed = _read(self.file, min(CHUNK, self.left))
        self.left -= len(packed)
        return packed

    def finish(self) -> None:
        while not self.inflater.eof:
            packed = self.inflater.unconsumed_tail or self._next()
            if not packed:
                raise EOFError("the end of an array is missing")
            self.inflater.decompress(packed, CHUNK)


def _read(file: BinaryIO, count: int) -> bytes:
    content = file.read(count)
    if len(content) < count:
        raise EOFError("its end is missing")
    return content


def read_blocks(path: Path) -> Iterator[Pixels]:
    """Yield the images of a file in order, (n, 32, 32, 3) at a time. Raises DatasetError if it is damaged."""
    try:
        with path.open("rb") as file:
            yield from _read_array(file)
    except (OSError, EOFError, ValueError, KeyError, struct.error, zlib.error) as error:
        raise unreadable_svhn(path, error) from error


def _read_array(file: BinaryIO) -> Iterator[Pixels]:
    order = ORDERS[_read(file, HEADER)[-2:]]
    while True:
        kind, size = struct.unpack(f"{order}II", _read(file, 8))
        begin = file.tell()
        if kind in (ARRAY, COMPRESSED):
            content: _Bytes = _Plain(file) if kind == ARRAY else _Inflated(file, size)
            if kind == COMPRESSED:
                content.read(8)  # the tag of the array
            _, shape, name = (_read_small(content, order) for _ in range(3))
            if name == NAME:
                count = struct.unpack(f"{order}{len(shape) // 4}i", shape)[-1]
                kind, size = struct.unpack(f"{order}II", content.read(8))
                if kind != BYTES or size != count * IMAGE:
                    raise ValueError(f"X has {size} values of the type {kind}; expected {count * IMAGE} bytes")
                for start in range(0, count, TOGETHER):
                    images = min(TOGETHER, count - start)
                    values = np.frombuffer(content.read(images * IMAGE), np.uint8).reshape(images, *SHAPE[::-1])
                    yield np.ascontiguousarray(values.transpose(0, 3, 2, 1))
                content.finish()
                return
        file.seek(begin + size)


def _read_small(content: _Bytes, order: str) -> bytes:
    """Return the bytes of an element, which are in its tag if there are at most four."""
    tag = content.read(8)
    kind, size = struct.unpack(f"{order}II", tag)
    if kind >> 16:
        return tag[4 : 4 + (kind >> 16)]
    if size > MOST_ABOUT:
        raise ValueError(f"an array has a description of {size} bytes")
    return content.read(size + -size % 8)[:size]


def unreadable_svhn(path: Path, error: Exception) -> DatasetError:
    message = " ".join(str(error).split()) or type(error).__name__
    return DatasetError(f"{path} is not a MATLAB file of SVHN's images: {message}")


@dataclass(frozen=True, eq=False)
class SvhnFiles(Indexed):
    """The images of these files, which are read by rows.

    `count_images` returns the number of images in a file, from its headers, and `read_labels` their labels. `stamp`
    returns the state of the files.
    """

    train: tuple[Path, ...]
    test: tuple[Path, ...]
    count_images: Callable[[Path], int]
    read_labels: Callable[[Path], Labels]
    stamp: Callable[[], str]

    @cached_property
    def counts(self) -> tuple[int, int]:
        """The numbers of training and test images."""
        train, test = (sum(map(self.count_images, paths)) for paths in (self.train, self.test))
        return train, test

    def extent(self) -> Extent:
        return Extent(sum(self.counts), SHAPE)

    def _index_size(self) -> int:
        return sum(self.counts)

    def _index_key(self) -> str:
        return digest_of(INDEX_RULE, [self.stamp().encode()])

    def _read_index(self) -> PictureIndex:
        """Hash the pixels of each image, training images first."""
        sha = begin_digest(RULE)
        hashes = []
        for paths, count in zip((self.train, self.test), self.counts, strict=True):
            begin_part(sha, count * IMAGE)
            for path in paths:
                for block in read_blocks(path):
                    sha.update(block.data)
                    hashes.append(contents(block))
            labels = self._labels(paths)
            begin_part(sha, labels.nbytes)
            sha.update(labels.data)
        return PictureIndex(np.concatenate(hashes), SHAPE, sha.hexdigest())

    def _labels(self, paths: Sequence[Path]) -> Labels:
        return np.concatenate([self.read_labels(path) for path in paths])

    def open_rows(self) -> EncodedSplits:
        """Open the images. The origin of an image is its pixels, so that it is found in sets that are in memory."""
        count = self.counts[0]
        hashes = self.index.hashes
        train = self._rows(self.train, hashes[:count])
        return EncodedSplits(train, self._rows(self.test, hashes[count:]), CLASSES, train_origins=train.hashes)

    def _rows(self, paths: tuple[Path, ...], hashes: Hashes) -> SequentialRows:
        return SequentialRows(hashes, self._labels(paths), SHAPE, lambda: _checked_blocks(paths, hashes))


def _checked_blocks(paths: Sequence[Path], hashes: Hashes) -> Iterator[Pixels]:
    start = 0
    for path in paths:
        for block in read_blocks(path):
            if not np.array_equal(contents(block), hashes[start : start + len(block)]):
                raise changed(path)
            start += len(block)
            yield block
