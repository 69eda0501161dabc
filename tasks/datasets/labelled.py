"""Picture files with labels: read, decoded and brought to one shape, wherever the labels come from.

They may come from a folder with one sub-folder per class: FOLDER/train/CLASS/* and FOLDER/test/CLASS/*, or
FOLDER/CLASS/*. The classes are the sub-folders' names, sorted. Where there is no train and test, of every class's files
in sorted order the first, the sixth, the eleventh ... are the test split. Hidden files, and loose ones beside
sub-folders that are no pictures, are passed over; any other file in a class is refused, so that nothing is left out
unseen.

Rows are numbered in a random order (`tasks.datasets.row_order`), not in that of the files.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from tasks.datasets.dataset import DatasetError, file_bytes, file_sha256, unreadable
from tasks.datasets.images import Images, Indices, Labels, Opened, Pixels
from tasks.datasets.options import AS_THEY_ARE, ONE_SIZE, Options
from tasks.datasets.pictures import SUFFIXES, PictureError, map_in_threads, pixels
from tasks.datasets.row_order import draw_class_order
from tasks.datasets.source import Source, digest_of

RULE = "labelled pictures 2"
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

    def stack_split(self, split: Split, channels: int) -> Pixels:
        """All pictures of a split (n, h, w, c); a DatasetError unless all of the set have one size."""
        first = self.pictures[0].shape
        chosen = split_places(self.entries, split)
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
        return tuple(map_in_threads(file_sha256, [entry.path for entry in self.entries]))

    def rows(self, split: Split) -> FileRows:
        chosen = split_places(self.entries, split)
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
        for at, picture in enumerate(map_in_threads(self._one, different.tolist())):
            out[at] = picture
        return out[places]

    def _one(self, row: int) -> Pixels:
        digest, shown = decode_picture_file(self.paths[row], self.options)
        if digest != self.digests[row]:
            raise DatasetError(f"{self.paths[row]} has changed since the data set was opened; begin anew")
        return shown


def labelled_source(
    entries: Sequence[Labelled], names: tuple[str, ...], options: Options, also: tuple[Path, ...] = ()
) -> Source:
    """The source of these pictures; `also` are the other files that the labels come from."""
    files = (*also, *(entry.path for entry in entries))
    is_shaped = options.size is not None and options.channels is not None  # known without reading any picture
    by_rows = (lambda: LabelledFiles(tuple(entries), names, options)) if is_shaped else None
    return Source(RULE, files, lambda: read_labelled(tuple(entries), names, options), by_rows)


def read_labelled(entries: tuple[Labelled, ...], names: tuple[str, ...], options: Options) -> LabelledContent:
    """The content; a DatasetError naming the file that cannot be read or has another size than the first."""

    def one(entry: Labelled) -> tuple[str, Pixels]:
        return decode_picture_file(entry.path, options)

    digests: list[str] = []
    pictures: list[Pixels] = []
    for entry, (digest, shown) in zip(entries, map_in_threads(one, entries), strict=True):
        if pictures and shown.shape[:2] != pictures[0].shape[:2]:
            sizes = [f"{picture.shape[0]} x {picture.shape[1]}" for picture in (shown, pictures[0])]
            raise DatasetError(f"{entry.path} is {sizes[0]}, {entries[0].path.name} {sizes[1]}; {ONE_SIZE}")
        digests.append(digest)
        pictures.append(shown)
    return LabelledContent(entries, names, tuple(digests), tuple(pictures))


def decode_picture_file(path: Path, options: Options) -> tuple[str, Pixels]:
    """The SHA-256 of a picture file, and its pixels (h, w, c) in the shape of the options."""
    encoded = file_bytes(path)
    try:
        shown = options.reshape(pixels(encoded)[None])[0]
    except PictureError as error:
        raise DatasetError(f"{path} {error}") from None
    return hashlib.sha256(encoded).hexdigest(), shown


def shape_of(options: Options) -> tuple[int, int, int]:
    """Height, width and channels, where the options say them all."""
    assert options.size is not None
    assert options.channels is not None
    return *options.size, options.channels


def digest_of_files(entries: Sequence[Labelled], names: tuple[str, ...], digests: Sequence[str]) -> str:
    """The digest of pictures in their order, their labels and splits, and the classes' names; of no path."""
    pictures = [(digest, entry.label, entry.split) for digest, entry in zip(digests, entries, strict=True)]
    return digest_of(RULE, [json.dumps(names).encode(), json.dumps(pictures).encode()])


def labels_of(entries: Sequence[Labelled], split: Split) -> Labels:
    return np.array([entries[place].label for place in split_places(entries, split)], np.int64)


def split_places(entries: Sequence[Labelled], split: Split) -> list[int]:
    """Where the pictures of a split stand among the entries, in the order in which its rows are numbered."""
    places = [place for place, entry in enumerate(entries) if entry.split == split]
    order = draw_class_order([entries[place].label for place in places], split)
    return [places[row] for row in order]


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


LITTER = {"thumbs.db", "desktop.ini", "__macosx"}  # files that operating systems leave in folders


def folder_source(folder: Path, options: Options = AS_THEY_ARE) -> Source:
    """The folder's pictures; the DatasetError names the folder or file that is not as it should be."""
    split = [name for name in SPLITS if (folder / name).is_dir()]
    if len(split) == 1:
        missing = SPLITS[1 - SPLITS.index(split[0])]
        raise DatasetError(
            f"{folder} has a folder {split[0]!r}, but no {missing!r} beside it; it must have both or none"
        )
    entries, names = list_splits(folder) if split else list_classes(folder)
    check_classes(entries, names, folder)
    return labelled_source(entries, names, options)


def list_splits(folder: Path) -> tuple[list[Labelled], tuple[str, ...]]:
    folders = {split: class_folders(folder / split) for split in SPLITS}
    names = tuple(sorted({path.name for paths in folders.values() for path in paths}))
    entries = [
        Labelled(file, names.index(path.name), split)
        for split in SPLITS
        for path in folders[split]
        for file in class_pictures(path)
    ]
    return entries, names


def list_classes(folder: Path) -> tuple[list[Labelled], tuple[str, ...]]:
    paths = class_folders(folder)
    files = [(file, label) for label, path in enumerate(paths) for file in class_pictures(path)]
    splits = spread([label for _, label in files])
    entries = [Labelled(file, label, split) for (file, label), split in zip(files, splits, strict=True)]
    return entries, tuple(path.name for path in paths)


def class_folders(folder: Path) -> list[Path]:
    """The folder's sub-folders, sorted by name."""
    entries = visible(folder)
    folders = [path for path in entries if path.is_dir()]
    loose = [path for path in entries if path.suffix.lower() in SUFFIXES and path.is_file()]
    if loose:
        raise DatasetError(f"{loose[0]} belongs to no class; put it into a sub-folder of {folder} named for its class")
    if not folders:
        raise DatasetError(f"{folder} has no sub-folders; it must have one for each class, with its pictures")
    return folders


def class_pictures(folder: Path) -> list[Path]:
    """A class's pictures, sorted by name."""
    files = visible(folder)
    for path in files:
        if path.is_dir():
            raise DatasetError(f"{path} is a folder inside a class; pictures must lie in their class's folder itself")
        if not path.is_file():
            raise DatasetError(f"{path} is no file; a class's folder must hold nothing but pictures")
        if path.suffix.lower() not in SUFFIXES:
            allowed = ", ".join(suffix.lstrip(".") for suffix in SUFFIXES)
            raise DatasetError(f"{path} is no picture; a class's folder must hold nothing but pictures ({allowed})")
    if not files:
        raise DatasetError(f"{folder} is empty; a class must have pictures")
    return files


def visible(folder: Path) -> list[Path]:
    """The folder's entries, sorted by name, without hidden files and litter."""
    try:
        entries = sorted(folder.iterdir(), key=lambda path: path.name)
    except OSError as error:
        raise unreadable(folder, error) from None
    return [path for path in entries if not path.name.startswith(".") and path.name.lower() not in LITTER]
