"""Read a user's labelled images from any kind of file, decode them and resize them to one shape.

Folders (`tasks.datasets.picture_folder`), lists (`picture_table`) and Parquet files (`parquet`) all use this module, so
the same images with the same labels always yield the same data set, with equal pixels, classes and digest. Rows are
numbered in random order (`tasks.datasets.row_order`), not in the order of the files.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from tasks.datasets.classes import LabelError
from tasks.datasets.dataset import DatasetError, file_bytes
from tasks.datasets.images import BLOCK, Images, Indices, Labels, Pixels
from tasks.datasets.options import ONE_SIZE, Options
from tasks.datasets.picture_index import Indexed, PictureIndex
from tasks.datasets.pictures import (
    Decoded,
    Levels,
    PictureError,
    decode,
    map_in_threads,
    may_be_cut,
    range_notes,
    read_shape,
)
from tasks.datasets.row_order import draw_class_order
from tasks.datasets.selection import Selection, spread_if_alone
from tasks.datasets.source import EncodedSplits, Extent, Hashes, Source, digest_of
from tasks.datasets.splits import SPLITS, Split, missing_class

RULE = "labelled pictures 2"
INDEX_RULE = "index of labelled pictures 1"


@dataclass(frozen=True)
class Labelled:
    """An image, its class index and its split. The image is a file, a `row` of a table, or a `member` of an archive.

    `is_drawn` is set if the user chose no split. In that case, copies of a file are moved into the split of the first
    copy.
    """

    path: Path
    label: int
    split: Split
    row: int | None = None
    is_drawn: bool = False
    member: str = ""

    def __str__(self) -> str:
        if self.row is None:
            return str(self.path)
        return f"{self.path}, {self.member or f'row {self.row}'}"


Reader = Callable[[Labelled], bytes]


def read_file(entry: Labelled) -> bytes:
    """Return the encoded image in a file. Raises DatasetError if it cannot be read."""
    return file_bytes(entry.path)


@dataclass(frozen=True, eq=False)
class LabelledContent:
    """Decoded images (h, w, c), the SHA-256 of each encoded image, and the class names."""

    entries: tuple[Labelled, ...]
    names: tuple[str, ...]
    digests: tuple[str, ...]
    pictures: tuple[Pixels, ...]
    notes: tuple[str, ...] = ()

    def digest(self) -> str:
        return digest_of_files(self.entries, self.names, self.digests)

    def images(self) -> Images:
        channels = max(picture.shape[2] for picture in self.pictures)
        train, test = (self.stack_split(split, channels) for split in SPLITS)
        train_labels, test_labels = (_labels_of(self.entries, split) for split in SPLITS)
        hashes = b"".join(bytes.fromhex(self.digests[position]) for position in split_places(self.entries, "train"))
        return Images(
            *(train, train_labels, test, test_labels, len(self.names), self.names),
            notes=self.notes,
            train_hashes=np.frombuffer(hashes, np.uint8).reshape(-1, 32),
        )

    def stack_split(self, split: Split, channels: int) -> Pixels:
        """Return all images of a split (n, h, w, c).

        Raises DatasetError unless all images of the data set have the same size.
        """
        first = self.pictures[0].shape
        positions = split_places(self.entries, split)
        out = np.empty((len(positions), *first[:2], channels), np.uint8)
        for row, position in enumerate(positions):
            out[row] = self.pictures[position]  # repeats grey in every channel of a colour data set
        return out


@dataclass(frozen=True, eq=False)
class LabelledFiles(Indexed):
    """Encoded images that are decoded on demand. Their shape comes from the options and the headers.

    `reader` returns the encoded image of an entry, from its own file or from a table. Threads call it concurrently.
    `stamp` returns the state of the files (`tasks.datasets.source`). The index is kept in the cache folder as long as
    this state does not change.
    """

    entries: tuple[Labelled, ...]
    names: tuple[str, ...]
    options: Options
    reader: Reader
    stamp: Callable[[], str]
    notes: tuple[str, ...] = ()

    def extent(self) -> Extent:
        """Return the number of images, and their shape by the options and the header of the first image."""
        return Extent(len(self.entries), self._shape_of(*self._first_shape()))

    def _first_shape(self) -> tuple[int, int, int]:
        if self.options.size is not None and self.options.channels is not None:
            return (*self.options.size, self.options.channels)
        return self._read_shape(self.entries[0], self.reader(self.entries[0]))

    def _shape_of(self, height: int, width: int, channels: int) -> tuple[int, int, int]:
        """Return the shape to which images of this shape are converted."""
        return (*(self.options.size or (height, width)), self.options.channels or channels)

    def _read_shape(self, entry: Labelled, encoded: bytes) -> tuple[int, int, int]:
        try:
            return read_shape(encoded, self.options.bits)
        except PictureError as error:
            raise DatasetError(f"{entry} {error}") from None

    def _index_size(self) -> int:
        return len(self.entries)

    def _names(self, rows: Indices) -> tuple[str, ...]:
        return tuple(str(self.entries[row]) for row in rows.tolist())

    def _index_key(self) -> str:
        columns = np.array(
            [
                (-1 if entry.row is None else entry.row, entry.label, SPLITS.index(entry.split), entry.is_drawn)
                for entry in self.entries
            ],
            "<i8",
        )
        described = json.dumps([self.stamp(), str(self.options), self.names]).encode()
        return digest_of(INDEX_RULE, [described, columns.data])

    def _read_index(self) -> PictureIndex:
        """Read all images, a few at a time.

        Raises DatasetError if one is cut short, or if their sizes differ and no size is requested.
        """
        has_shape = self.options.size is not None and self.options.channels is not None

        def read(entry: Labelled) -> tuple[bytes, tuple[int, int, int]]:
            encoded = self.reader(entry)
            shape = (0, 0, 0) if has_shape else self._read_shape(entry, encoded)
            if may_be_cut(encoded):
                self._decode(encoded, entry)
            return hashlib.sha256(encoded).digest(), shape

        hashes = bytearray()
        first_shape = self._first_shape()
        channels = first_shape[2]
        for entry, (sha256, shape) in zip(self.entries, map_in_threads(read, self.entries), strict=True):
            hashes += sha256
            if has_shape:
                continue
            if self.options.size is None:
                check_size(entry, shape, self.entries[0], first_shape)
            channels = max(channels, shape[2])
        rows = np.frombuffer(bytes(hashes), np.uint8).reshape(-1, 32)
        shape = self._shape_of(*first_shape[:2], channels)
        digests = [row.tobytes().hex() for row in rows]
        joined = _join_copies(self.entries, self.names, digests)
        return PictureIndex(rows, shape, digest_of_files(joined, self.names, digests))

    @cached_property
    def joined_entries(self) -> tuple[Labelled, ...]:
        """The entries, with all copies of an image in the same split."""
        return _join_copies(self.entries, self.names, [row.tobytes() for row in self.index.hashes])

    def open_rows(self) -> EncodedSplits:
        train, test = (self.rows(split) for split in SPLITS)
        return EncodedSplits(train, test, len(self.names), self.names, notes=self.notes)

    def rows(self, split: Split) -> FileRows:
        joined = self.joined_entries
        positions = split_places(joined, split)
        entries = tuple(joined[position] for position in positions)
        labels = np.array([entry.label for entry in entries], np.int64)
        return FileRows(entries, self.index.hashes[positions], labels, self.index.shape, self._decode, self.reader)

    def _decode(self, encoded: bytes, entry: Labelled) -> Pixels:
        return _decode_encoded(encoded, entry, self.options)[1].pixels

    def sample_levels(self, most: int) -> list[Levels]:
        """Return the levels of `most` images at equal distances, or of fewer if they exceed BLOCK values together."""
        values = math.prod(self._read_shape(self.entries[0], self.reader(self.entries[0])))
        count = min(most, BLOCK // values, len(self.entries))
        if not count:
            return []
        sampled = self.entries[:: len(self.entries) // count][:count]
        return list(map_in_threads(lambda entry: self._decode_all(entry).levels, sampled))

    def _decode_all(self, entry: Labelled) -> Decoded:
        return _decode_encoded(self.reader(entry), entry, self.options)[1]

    def rows_with_levels(self, split: Split) -> tuple[FileRows, set[Levels]]:
        """Return the images of a split, and the levels of all images that were read from it."""
        found: set[Levels] = set()

        def decode_one(encoded: bytes, entry: Labelled) -> Pixels:
            decoded = _decode_encoded(encoded, entry, self.options)[1]
            found.add(decoded.levels)
            return decoded.pixels

        return replace(self.rows(split), decode=decode_one), found


@dataclass(frozen=True, eq=False)
class FileRows:
    """Images that are decoded on demand.

    `decode` returns the pixels (h, w, c) of an encoded image, grey or in the channels of `shape`.
    """

    entries: tuple[Labelled, ...]  # in row order
    hashes: Hashes  # (n, 32): SHA-256 of each encoded image
    labels: Labels
    shape: tuple[int, int, int]
    decode: Callable[[bytes, Labelled], Pixels]
    reader: Reader = read_file

    def __len__(self) -> int:
        return len(self.entries)

    def pixels(self, rows: Indices) -> Pixels:
        different, positions = np.unique(rows, return_inverse=True)  # several models in one step may use the same image
        out = np.empty((len(different), *self.shape), np.uint8)
        for index, picture in enumerate(map_in_threads(self._one, different.tolist())):
            out[index] = picture  # repeats grey in every channel of a colour data set
        return out[positions]

    def _one(self, row: int) -> Pixels:
        entry = self.entries[row]
        encoded = self.reader(entry)
        pixels = self.decode(encoded, entry)
        if hashlib.sha256(encoded).digest() != self.hashes[row].tobytes():
            raise changed(entry)
        return pixels


def changed(where: object) -> DatasetError:
    """Return the error for an image, or a file of images, that differs from the index."""
    return DatasetError(
        f"{where} has changed since the data set was opened; run `engram store verify --data`, then start the run again"
    )


def labelled_source(
    entries: Sequence[Labelled],
    names: tuple[str, ...],
    options: Options,
    also: tuple[Path, ...] = (),
    notes: tuple[str, ...] = (),
    reader: Reader = read_file,
    files: tuple[Path, ...] | None = None,
) -> Source:
    """Return the source of these images. `also` are other files that contain labels.

    `reader` returns the encoded image of an entry. If several entries are rows of one file, `files` names all files.
    """
    if files is None:
        files = tuple(entry.path for entry in entries)
    all_entries = tuple(entries)
    source = Source(
        RULE, (*also, *files), lambda: read_labelled(all_entries, names, options, reader), notes=notes, tables=len(also)
    )
    return replace(source, by_rows=lambda: LabelledFiles(all_entries, names, options, reader, source.stamp))


def read_labelled(
    entries: tuple[Labelled, ...],
    names: tuple[str, ...],
    options: Options,
    reader: Reader = read_file,
) -> LabelledContent:
    """Read the content.

    Raises DatasetError if an image cannot be read or differs in size from the first.
    """

    def one(entry: Labelled) -> tuple[str, Decoded]:
        return _decode_encoded(reader(entry), entry, options)

    digests: list[str] = []
    pictures: list[Pixels] = []
    levels: list[Levels] = []
    for entry, (digest, decoded) in zip(entries, map_in_threads(one, entries), strict=True):
        if pictures:
            check_size(entry, decoded.pixels.shape, entries[0], pictures[0].shape)
        digests.append(digest)
        pictures.append(decoded.pixels)
        levels.append(decoded.levels)
    joined = _join_copies(entries, names, digests)
    return LabelledContent(joined, names, tuple(digests), tuple(pictures), range_notes(levels))


def check_size(entry: Labelled, shape: tuple[int, ...], first: Labelled, first_shape: tuple[int, ...]) -> None:
    """Raise DatasetError unless an image has the height and width of the first."""
    if shape[:2] != first_shape[:2]:
        first = replace(first, path=Path(first.path.name))
        raise DatasetError(
            f"{entry} is {shape[0]} x {shape[1]}, {first} {first_shape[0]} x {first_shape[1]}; {ONE_SIZE}"
        )


def _join_copies(
    entries: tuple[Labelled, ...], names: Sequence[str], digests: Sequence[str | bytes]
) -> tuple[Labelled, ...]:
    """Replace each randomly drawn split by the split of the first file with the same bytes.

    Raises DatasetError if a class is then missing from a split.
    """
    first_splits: dict[str | bytes, Split] = {}
    joined = list(entries)
    moved = 0
    for position, (entry, digest) in enumerate(zip(entries, digests, strict=True)):
        split = first_splits.setdefault(digest, entry.split)
        if entry.is_drawn and split != entry.split:
            joined[position] = replace(entry, split=split)
            moved += 1
    problem = missing_class(joined, names) if moved else None
    if problem is not None:
        raise DatasetError(f"{entries[0].path.parent}: {problem}, and copies of one image count as one")
    return tuple(joined)


def _decode_encoded(encoded: bytes, where: object, options: Options) -> tuple[str, Decoded]:
    """Return the SHA-256 of an encoded image and its pixels (h, w, c), converted to the shape in the options."""
    try:
        decoded = decode(encoded, bits=options.bits)
    except PictureError as error:
        raise DatasetError(f"{where} {error}") from None
    return hashlib.sha256(encoded).hexdigest(), replace(decoded, pixels=options.reshape(decoded.pixels[None])[0])


def digest_of_files(entries: Sequence[Labelled], names: tuple[str, ...], digests: Sequence[str]) -> str:
    """Compute the digest of the images in order, their labels and splits, and the class names, without paths."""
    pictures = []
    for digest, entry in zip(digests, entries, strict=True):
        pictures.append((digest, entry.label, entry.split))
    return digest_of(RULE, [json.dumps(names).encode(), json.dumps(pictures).encode()])


def _labels_of(entries: Sequence[Labelled], split: Split) -> Labels:
    return np.array([entries[position].label for position in split_places(entries, split)], np.int64)


def split_places(entries: Sequence[Labelled], split: Split) -> list[int]:
    """Return the positions of a split's images among the entries, in row order."""
    positions = [position for position, entry in enumerate(entries) if entry.split == split]
    order = draw_class_order([entries[position].label for position in positions], split)
    return [positions[row] for row in order]


def select_entries(
    entries: Sequence[Labelled],
    selection: Selection,
    marks: Sequence[tuple[str, str]],
    where: Path,
    names: Sequence[str],
) -> list[Labelled]:
    """Return the selected entries. `marks` holds the location and mark of each entry, and `names` the class names.

    Raises DatasetError for an invalid mark, or if no entry of a class is selected.
    """
    selected_entries = []
    for entry, (mark_position, mark) in zip(entries, marks, strict=True):
        try:
            if selection.includes(mark):
                selected_entries.append(entry)
        except LabelError as error:
            raise DatasetError(f"{mark_position}: {error}") from None
    missing_labels = sorted(set(range(len(names))) - {entry.label for entry in selected_entries})
    if missing_labels:
        of_class = ""
        if selected_entries:
            of_class = f" of class {names[missing_labels[0]]!r}"
        raise DatasetError(
            f"{where}: column {selection.column} marks no image{of_class} as {selection.noun}; members and other "
            "images must have the same classes"
        )
    original_splits = [entry.split for entry in selected_entries]
    splits = spread_if_alone([entry.label for entry in selected_entries], original_splits)
    return [
        replace(entry, split=split, is_drawn=entry.is_drawn or splits != original_splits)
        for entry, split in zip(selected_entries, splits, strict=True)
    ]


def check_classes(entries: Sequence[Labelled], names: Sequence[str], where: Path) -> None:
    """Raise DatasetError unless every class has images in both splits."""
    problem = missing_class(entries, names)
    if problem is not None:
        raise DatasetError(f"{where}: {problem}")
