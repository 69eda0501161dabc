"""Picture files with labels, wherever the labels come from: read, decoded and brought to one shape."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from tasks.datasets.content import Source, digest_of
from tasks.datasets.dataset import DatasetError
from tasks.datasets.images import Images, Pixels
from tasks.datasets.options import ONE_SIZE, Options
from tasks.datasets.pictures import PictureError, pixels

RULE = "labelled pictures 1"
# Decoding leaves the interpreter, so threads share it; from four on a disk has no more to give.
THREADS = 4
EVERY = 5  # one picture in so many of a class is in the test split, where nobody says which

Split = Literal["train", "test"]


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
        """Of the pictures in their order, their labels and splits, and the classes' names; of no path."""
        told = [(digest, entry.label, entry.split) for digest, entry in zip(self.digests, self.entries, strict=True)]
        return digest_of(RULE, [json.dumps(self.names).encode(), json.dumps(told).encode()])

    def images(self) -> Images:
        channels = max(picture.shape[2] for picture in self.pictures)
        train, test = (self.stacked(split, channels) for split in ("train", "test"))
        labels = {
            split: np.array([entry.label for entry in self.entries if entry.split == split], np.int64)
            for split in ("train", "test")
        }
        return Images(train, labels["train"], test, labels["test"], len(self.names), self.names)

    def stacked(self, split: str, channels: int) -> Pixels:
        """All pictures of a split (n, h, w, c); a DatasetError unless all of the set have one size."""
        first = self.pictures[0].shape
        chosen = [at for at, entry in enumerate(self.entries) if entry.split == split]
        out = np.empty((len(chosen), *first[:2], channels), np.uint8)
        for row, at in enumerate(chosen):
            out[row] = self.pictures[at]  # grey among coloured ones is repeated
        return out


def source(
    entries: Sequence[Labelled], names: tuple[str, ...], options: Options, also: tuple[Path, ...] = ()
) -> Source:
    """Where these pictures are read from; `also` says which other files the labels come from."""
    files = (*also, *(entry.path for entry in entries))
    return Source(RULE, files, lambda: read(tuple(entries), names, options))


def read(entries: tuple[Labelled, ...], names: tuple[str, ...], options: Options) -> LabelledContent:
    """The content; a DatasetError naming the file that cannot be read or has another size than the first."""

    def one(entry: Labelled) -> tuple[str, Pixels]:
        try:
            encoded = entry.path.read_bytes()
            shown = options.shaped(pixels(encoded)[None])[0]
        except OSError as error:
            raise DatasetError(f"{entry.path} cannot be read: {error.strerror or error}") from None
        except PictureError as error:
            raise DatasetError(f"{entry.path} {error}") from None
        return hashlib.sha256(encoded).hexdigest(), shown

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
                all_told = there[label, "train"] + there[label, "test"]
                raise DatasetError(
                    f"{where}: class {name!r} has no picture in the {split} split, and {all_told} in all; "
                    "each class must be in both"
                )
