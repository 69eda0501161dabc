"""IDX files, in which MNIST and Fashion-MNIST come, gzipped or not.

Big-endian: two zero bytes, a type (8: unsigned byte), the number of axes, each axis's length as uint32, the values.
Format: LeCun, Cortes & Burges, "The MNIST database of handwritten digits", file formats.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tasks.datasets.content import Source, digest_of
from tasks.datasets.dataset import DatasetError
from tasks.datasets.images import Images
from tasks.size_limits import TooLarge, gunzip

RULE = "idx 1"
PARTS = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True)
class IdxContent:
    """The four files' bytes, unpacked, in the order of PARTS."""

    parts: tuple[bytes, ...]

    def digest(self) -> str:
        return digest_of(RULE, self.parts)

    def images(self) -> Images:
        train, train_labels, test, test_labels = (
            parse(part, name) for part, name in zip(self.parts, PARTS, strict=True)
        )
        labels = [array.astype(np.int64) for array in (train_labels, test_labels)]
        classes = 1 + max((int(array.max()) for array in labels if array.size), default=0)
        return Images(train[..., None], labels[0], test[..., None], labels[1], classes)


def source(folder: Path) -> Source | None:
    """The folder's four IDX files, each gzipped or not; None unless all are there."""
    files = tuple(path for name in PARTS for path in here(folder, name))
    if len(files) < len(PARTS):
        return None
    return Source(RULE, files, lambda: IdxContent(tuple(unpack_file(path) for path in files)))


def here(folder: Path, name: str) -> Iterator[Path]:
    """The first of NAME and NAME.gz that is in the folder, if any is."""
    candidates = (folder / name, folder / f"{name}.gz")
    yield from [path for path in candidates if path.is_file()][:1]


def unpack_file(path: Path) -> bytes:
    """A file's bytes, gunzipped where they are gzipped, whatever the file is called."""
    try:
        raw = path.read_bytes()
        return gunzip(raw) if raw.startswith(GZIP_MAGIC) else raw
    except (OSError, EOFError, zlib.error, TooLarge) as error:
        raise DatasetError(f"{path} cannot be read: {error}") from error


def parse(raw: bytes, name: str) -> NDArray[np.uint8]:
    """The array in an IDX file of unsigned bytes, read-only."""
    axes = 3 if "idx3" in name else 1
    header = 4 + 4 * axes
    if len(raw) < header or raw[:4] != bytes((0, 0, 8, axes)):
        raise DatasetError(f"{name} is not an IDX file of {axes} axes: it begins with {raw[:4].hex() or 'nothing'}")
    shape = struct.unpack(f">{axes}I", raw[4:header])
    if len(raw) - header != math.prod(shape):
        raise DatasetError(f"{name} holds {len(raw) - header} values; its header announces {math.prod(shape)}")
    return np.frombuffer(raw, np.uint8, offset=header).reshape(shape)
