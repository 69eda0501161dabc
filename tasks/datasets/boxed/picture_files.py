"""Boxed images in files, which are indexed once, hashed as a stream and decoded on demand.

The index of all files (hashes, sizes and boxes) is cached as `DIGEST.boxed.arrow` in the cache folder
(`tasks.datasets.picture_cache`) for use by other processes. The file may be deleted at any time. Every image is checked
against its hash when it is decoded.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.datasets.boxed import annotation
from tasks.datasets.boxed.pictures import Boxes, load_squares
from tasks.datasets.cache_folder import cache_folder
from tasks.datasets.copies import contents, first_rows
from tasks.datasets.dataset import DatasetError, file_bytes
from tasks.datasets.images import Images, Indices, Labels, Pixels
from tasks.datasets.pictures import MANY_THREADS, Decoded, PictureError, decode, map_in_threads, read_shape
from tasks.datasets.source import digest_of

RULE = "boxed pictures 1"
COPIES_RULE = "copies in one part 1"
BATCH = 1024  # rows converted to columns at a time


@dataclass(frozen=True, slots=True)
class Listed:
    """An image file with its id and label, and either its boxes or the file that contains them."""

    id: str
    path: str  # relative to the common folder
    label: int
    annotation: str = ""  # path relative to the same folder; empty if there is no such file
    boxes: tuple[tuple[int, int, int, int], ...] = ()
    is_validation: bool = False
    part: str = ""  # role for a third-party model


@dataclass(frozen=True, eq=False)
class Listing:
    """The class names, and the images in order of their ids."""

    names: tuple[str, ...]
    entries: tuple[Listed, ...]


@dataclass(frozen=True, eq=False)
class Ragged(Sequence[Boxes]):
    """The boxes of all images concatenated (m, 4), and the cumulative box counts (n + 1,)."""

    values: Boxes
    ends: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ends) - 1

    @overload
    def __getitem__(self, row: int) -> Boxes: ...

    @overload
    def __getitem__(self, row: slice) -> Sequence[Boxes]: ...

    def __getitem__(self, row: int | slice) -> Boxes | Sequence[Boxes]:
        if isinstance(row, slice):
            return [self[index] for index in range(*row.indices(len(self)))]
        if not -len(self) <= row < len(self):
            raise IndexError(row)
        row %= len(self)
        return self.values[self.ends[row] : self.ends[row + 1]]

    def __iter__(self) -> Iterator[Boxes]:
        for first, last in zip(self.ends[:-1].tolist(), self.ends[1:].tolist(), strict=True):
            yield self.values[first:last]


@dataclass(frozen=True, eq=False)
class Index:
    """Index of all images: a table with one row per image, and the class names."""

    table: pa.Table
    names: tuple[str, ...]

    def digest(self, rule: str) -> str:
        """Compute the digest of ids, bytes, labels, boxes, parts and class names. Paths matter only as ids."""
        table = self.table
        parts = [json.dumps([self.names, table["id"].to_pylist(), table["part"].to_pylist()]).encode()]
        parts += [b"".join(table["sha256"].to_pylist())]
        parts += [table[name].to_numpy().astype("<i8").tobytes() for name in ("label", "height", "width")]
        parts += [boxes.astype("<i8").tobytes() for boxes in (self.boxes.ends, self.boxes.values)]
        parts += [table["is_validation"].to_numpy().astype(np.uint8).tobytes()]
        if not np.array_equal(self.first_copies, np.arange(len(table))):
            parts += [COPIES_RULE.encode()]  # data sets without copies keep their earlier digests and results
            if not np.array_equal(self.first_copies, first_rows(self.hashes("sha256"))):
                parts += [self.first_copies.astype("<i8").tobytes()]
        return digest_of(rule, parts)

    def lies_in(self, folder: Path) -> bool:
        """Return whether the first and last images are files in this folder."""
        paths = self.table["path"]
        if len(paths):
            return all((folder / paths[index].as_py()).is_file() for index in (0, -1))
        return True

    @cached_property
    def first_copies(self) -> NDArray[np.int64]:
        """Return, for each image (n,), the first image with the same pixels.

        If pixels were not compared, this is the first image with an identical file.
        """
        return first_rows(self.hashes("sha256" if self.table["pixels"].null_count else "pixels"))

    def hashes(self, column: str) -> NDArray[np.uint8]:
        """Return a column of SHA-256 hashes, (n, 32)."""
        return np.frombuffer(b"".join(self.table[column].to_pylist()), np.uint8).reshape(-1, 32)

    @cached_property
    def boxes(self) -> Ragged:
        flat = self.table["boxes"].combine_chunks()
        ends = np.concatenate([[0], np.cumsum(flat.value_lengths().to_numpy(zero_copy_only=False), dtype=np.int64)])
        return Ragged(np.array(flat.flatten(), np.int32).reshape(-1, 4), ends // 4)


SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("path", pa.string()),
        ("label", pa.int64()),
        ("sha256", pa.binary(32)),
        ("pixels", pa.binary(32)),  # SHA-256 of decoded pixels; null if copies are detected by file
        ("height", pa.int32()),
        ("width", pa.int32()),
        ("boxes", pa.list_(pa.int32())),  # left, top, right, bottom of each box in turn
        ("is_validation", pa.bool_()),
        ("part", pa.string()),
    ]
)


@dataclass(frozen=True, eq=False)
class BoxedFiles:
    """Data set content that consists of boxed image files in a folder, listed on first use.

    Images are rotated according to their EXIF tag if `turned` is set. 16-bit images use `bits` bits. With `decoded`,
    all images are decoded for the digest, so that copies in different encodings are detected.
    """

    rule: str
    folder: Path
    read_listing: Callable[[], Listing]
    turned: bool = True
    bits: int | None = None
    decoded: bool = False

    def digest(self) -> str:
        """Compute the digest from all files, reading a few at a time."""
        digest = self.index.digest(self.full_rule)
        with suppress(OSError):  # the cache is optional
            write_index(self.index, digest, self.full_rule)
        return digest

    def images(self) -> Images:
        raise DatasetError(
            f"{self.folder} contains boxed images of different sizes; for images of one size, use folder:PATH#224x224 "
            "or list:FILE#224x224"
        )

    def pictures(self, digest: str) -> PictureFiles:
        """Return the images with their digest. If the given digest is cached, no files are read."""
        index = _load_index(digest, self.full_rule) if digest else None
        if index is None or not index.lies_in(self.folder):  # the same images may be stored in another layout
            digest = self.digest()
            index = self.index
        return PictureFiles(self.folder, index, digest, self.turned, self.bits)

    @property
    def full_rule(self) -> str:
        return f"{RULE} {self.rule}"

    @cached_property
    def index(self) -> Index:
        listing = self.read_listing()
        rows = map_in_threads(self.row, listing.entries, MANY_THREADS)
        batches = []
        while batch := list(islice(rows, BATCH)):
            batches.append(pa.RecordBatch.from_pylist(batch, SCHEMA))
        return Index(pa.Table.from_batches(batches, SCHEMA), listing.names)

    def row(self, entry: Listed) -> dict[str, object]:
        path = self.folder / entry.path
        encoded = file_bytes(path)
        try:
            height, width, _ = read_shape(encoded, self.bits, self.turned)
            pixels = self.pixel_hash(encoded) if self.decoded else None
        except PictureError as error:
            raise DatasetError(f"{path} {error}") from None
        boxes = np.array(entry.boxes, np.int32).reshape(-1, 4)
        if entry.annotation:
            boxes = annotation.read(self.folder / entry.annotation).boxes(height, width)
        return {
            "id": entry.id,
            "path": entry.path,
            "label": entry.label,
            "sha256": hashlib.sha256(encoded).digest(),
            "pixels": pixels,
            "height": height,
            "width": width,
            "boxes": boxes.ravel(),
            "is_validation": entry.is_validation,
            "part": entry.part,
        }

    def pixel_hash(self, encoded: bytes) -> bytes:
        """Return the SHA-256 of the RGB pixels and shape of an encoded image."""
        decoded = decode(encoded, channels=3, bits=self.bits, turned=self.turned)
        digest: bytes = contents(decoded.pixels[None])[0].tobytes()
        return digest


@dataclass(frozen=True, eq=False)
class PictureFiles:
    """Boxed images that are decoded on demand."""

    folder: Path
    index: Index
    digest: str
    turned: bool
    bits: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return self.index.names

    @cached_property
    def ids(self) -> tuple[str, ...]:
        return tuple(self.index.table["id"].to_pylist())

    @cached_property
    def labels(self) -> Labels:
        return np.array(self.index.table["label"], np.int64)

    @property
    def boxes(self) -> Ragged:
        return self.index.boxes

    @cached_property
    def sizes(self) -> NDArray[np.int32]:
        return np.stack([np.array(self.index.table[name], np.int32) for name in ("height", "width")], axis=1)

    @cached_property
    def is_validation(self) -> NDArray[np.bool_]:
        return np.array(self.index.table["is_validation"], np.bool_)

    @property
    def first_copies(self) -> NDArray[np.int64]:
        return self.index.first_copies

    @cached_property
    def given_parts(self) -> tuple[str, ...] | None:
        parts = tuple(self.index.table["part"].to_pylist())
        return parts if any(parts) else None

    @cached_property
    def paths(self) -> pa.Array:
        return self.index.table["path"].combine_chunks()

    @cached_property
    def digests(self) -> pa.Array:
        return self.index.table["sha256"].combine_chunks()

    def picture(self, row: int) -> Pixels:
        return self.decode(row).pixels

    def decode(self, row: int) -> Decoded:
        """Decode an image to RGB, along with the levels in its file. Raises DatasetError if it cannot be read."""
        path = self.folder / self.paths[row].as_py()
        encoded = file_bytes(path)
        try:
            decoded = decode(encoded, channels=3, bits=self.bits, turned=self.turned)
        except PictureError as error:
            raise DatasetError(f"{path} {error}") from None
        if hashlib.sha256(encoded).digest() != self.digests[row].as_py():
            raise DatasetError(f"{path} has changed since the data set was opened; start the run again")
        return decoded

    def squares(self, rows: Indices, side: int) -> Pixels:
        """Return the squares. They are mapped from a file if they would use more than half of the available memory."""
        return load_squares(self, rows, side, self.digest)


def index_path(digest: str) -> Path:
    return cache_folder() / f"{digest}.boxed.arrow"


def write_index(index: Index, digest: str, rule: str) -> None:
    """Write the index atomically, unless it already exists with the same paths."""
    path = index_path(digest)
    existing_index = _load_index(digest, rule)
    if existing_index is not None and existing_index.table["path"].equals(index.table["path"]):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    about = {"names": json.dumps(index.names)}
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with pa.OSFile(str(aside), "wb") as file, pa.ipc.new_file(file, SCHEMA.with_metadata(about)) as writer:
            writer.write_table(index.table.replace_schema_metadata(about))
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def _load_index(digest: str, rule: str) -> Index | None:
    """Load the index of the data set with this digest, or return None if it is missing or damaged."""
    try:
        table = pa.ipc.open_file(pa.memory_map(str(index_path(digest)))).read_all()
        index = Index(table, tuple(json.loads(table.schema.metadata[b"names"])))
        return index if index.digest(rule) == digest else None
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError):
        return None
