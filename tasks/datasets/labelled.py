"""Picture files with labels, wherever the labels come from: read, decoded and brought to one shape."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from tasks.datasets.content import Source, digest_of
from tasks.datasets.dataset import DatasetError
from tasks.datasets.images import Images, Labels, Pixels
from tasks.datasets.options import ONE_SIZE, Options
from tasks.datasets.picture_rows import Indices, Opened
from tasks.datasets.pictures import PictureError, pixels
from tasks.files import regular_bytes

RULE = "labelled pictures 1"
# Decoding leaves the interpreter, so threads share it; from four on a disk has no more to give.
THREADS = 4
EVERY = 5  # one picture in so many of a class is in the test split, where none is given

Split = Literal["train", "test"]
SPLITS: tuple[Split, Split] = ("train", "test")


@dataclass(frozen=True)
class Labelled:
    """A picture file, the index of its class and its split."""

    path: Path
    label: int
    split: Split


@dataclass(frozen=True, eq=False)
class LabelledContent:
    """Decoded pictures (h, w, c), each with the SHA-256 of its file, and the names of their classes."""

    entries: tuple[Labelled, ...]
    names: tuple[str, ...]
    digests: tuple[str, ...]
    pictures: tuple[Pixels, ...]

    def digest(self) -> str:
        return digest_of_files(self.entries, self.names, self.digests)

    def images(self) -> Images:
        channels = max(picture.shape[2] for picture in self.pictures)
        train, test = (self.stack_split(split, channels) for split in SPLITS)
        train_labels, test_labels = (labels_of(self.entries, split) for split in SPLITS)
        return Images(train, train_labels, test, test_labels, len(self.names), self.names)

    def stack_split(self, split: str, channels: int) -> Pixels:
        """All pictures of a split (n, h, w, c); a DatasetError unless all of the set have one size."""
        first = self.pictures[0].shape
        chosen = [at for at, entry in enumerate(self.entries) if entry.split == split]
        out = np.empty((len(chosen), *first[:2], channels), np.uint8)
        for row, at in enumerate(chosen):
            out[row] = self.pictures[at]  # grey among coloured ones is repeated
        return out


@dataclass(frozen=True, eq=False)
class LabelledFiles:
    """Picture files, every one of which is brought to the shape of the options: a size and a number of channels."""

    entries: tuple[Labelled, ...]
    names: tuple[str, ...]
    options: Options

    def size(self) -> int:
        return len(self.entries) * math.prod(shape_of(self.options))

    def digest(self) -> str:
        """The same digest as that of the pictures read all together."""
        return digest_of_files(self.entries, self.names, self.digests)

    def open_rows(self) -> Opened:
        train, test = (self.rows(split) for split in SPLITS)
        return Opened(train, test, len(self.names), self.names)

    @cached_property
    def digests(self) -> tuple[str, ...]:
        """The SHA-256 of each file's bytes."""
        with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as pool:
            return tuple(pool.map(sha256, [entry.path for entry in self.entries]))

    def rows(self, split: Split) -> FileRows:
        chosen = [at for at, entry in enumerate(self.entries) if entry.split == split]
        paths, digests = tuple(self.entries[at].path for at in chosen), tuple(self.digests[at] for at in chosen)
        return FileRows(paths, digests, labels_of(self.entries, split), self.options)


@dataclass(frozen=True, eq=False)
class FileRows:
    """Pictures that are decoded on demand, into the shape of the options."""

    paths: tuple[Path, ...]
    digests: tuple[str, ...]  # SHA-256 of each file
    labels: Labels
    options: Options

    @property
    def shape(self) -> tuple[int, int, int]:
        return shape_of(self.options)

    def __len__(self) -> int:
        return len(self.paths)

    def pixels(self, rows: Indices) -> Pixels:
        different, places = np.unique(rows, return_inverse=True)  # models in one step may share a picture
        out = np.empty((len(different), *self.shape), np.uint8)
        with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as pool:
            for at, picture in enumerate(pool.map(self._one, different.tolist())):
                out[at] = picture
        return out[places]

    def _one(self, row: int) -> Pixels:
        digest, shown = decode_picture_file(self.paths[row], self.options)
        if digest != self.digests[row]:
            raise DatasetError(f"{self.paths[row]} has changed since the data set was opened; begin anew")
        return shown


def source(
    entries: Sequence[Labelled], names: tuple[str, ...], options: Options, also: tuple[Path, ...] = ()
) -> Source:
    """The source of these pictures; `also` are the other files that the labels come from."""
    files = (*also, *(entry.path for entry in entries))
    is_shaped = options.size is not None and options.channels is not None  # known without reading any picture
    by_rows = (lambda: LabelledFiles(tuple(entries), names, options)) if is_shaped else None
    return Source(RULE, files, lambda: read(tuple(entries), names, options), by_rows)


def read(entries: tuple[Labelled, ...], names: tuple[str, ...], options: Options) -> LabelledContent:
    """The content; a DatasetError naming the file that cannot be read or has another size than the first."""

    def one(entry: Labelled) -> tuple[str, Pixels]:
        return decode_picture_file(entry.path, options)

    pool = ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1))
    digests: list[str] = []
    pictures: list[Pixels] = []
    try:
        for entry, (digest, shown) in zip(entries, pool.map(one, entries), strict=True):
            if pictures and shown.shape[:2] != pictures[0].shape[:2]:
                sizes = [f"{picture.shape[0]} x {picture.shape[1]}" for picture in (shown, pictures[0])]
                raise DatasetError(f"{entry.path} is {sizes[0]}, {entries[0].path.name} {sizes[1]}; {ONE_SIZE}")
            digests.append(digest)
            pictures.append(shown)
    finally:
        pool.shutdown(cancel_futures=True)
    return LabelledContent(entries, names, tuple(digests), tuple(pictures))


def decode_picture_file(path: Path, options: Options) -> tuple[str, Pixels]:
    """The SHA-256 of a picture file, and its pixels (h, w, c) in the shape of the options."""
    try:
        encoded = regular_bytes(path)
        shown = options.reshape(pixels(encoded)[None])[0]
    except OSError as error:
        raise unreadable(path, error) from None
    except PictureError as error:
        raise DatasetError(f"{path} {error}") from None
    return hashlib.sha256(encoded).hexdigest(), shown


def sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise unreadable(path, error) from None


def shape_of(options: Options) -> tuple[int, int, int]:
    """Height, width and channels, where the options say them all."""
    assert options.size is not None
    assert options.channels is not None
    return *options.size, options.channels


def unreadable(path: Path, error: OSError) -> DatasetError:
    return DatasetError(f"{path} cannot be read: {error.strerror or error}")


def digest_of_files(entries: Sequence[Labelled], names: tuple[str, ...], digests: Sequence[str]) -> str:
    """The digest of pictures in their order, their labels and splits, and the classes' names; of no path."""
    pictures = [(digest, entry.label, entry.split) for digest, entry in zip(digests, entries, strict=True)]
    return digest_of(RULE, [json.dumps(names).encode(), json.dumps(pictures).encode()])


def labels_of(entries: Sequence[Labelled], split: Split) -> Labels:
    return np.array([entry.label for entry in entries if entry.split == split], np.int64)


def spread(labels: Sequence[int]) -> Iterator[Split]:
    """The split of each of these pictures: of every class the first, the sixth, the eleventh ... is for testing."""
    met: Counter[int] = Counter()
    for label in labels:
        yield "train" if met[label] % EVERY else "test"
        met[label] += 1


def check_classes(entries: Sequence[Labelled], names: Sequence[str], where: Path) -> None:
    """A DatasetError unless every class has pictures in both splits."""
    there = Counter((entry.label, entry.split) for entry in entries)
    for label, name in enumerate(names):
        for split in ("train", "test"):
            if not there[label, split]:
                total = there[label, "train"] + there[label, "test"]
                raise DatasetError(
                    f"{where}: class {name!r} has no picture in the {split} split, and {total} in all; "
                    "each class must be in both"
                )
