"""Images of a data set that is larger than LARGE when decoded: they are known by their headers and read by rows.

Labels, shape and counts come from the list of files and the headers. Pixels come from the cache on disk
(`tasks.datasets.picture_cache`), which the first process of a machine that reads a row writes. Two images are copies if
their encoded bytes are equal, since comparing pixels would require all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tasks.datasets.images import Indices, Labels, PictureRows, Pixels
from tasks.datasets.picture_cache import CacheFile, MappedRows, path_of
from tasks.datasets.source import EncodedRows, EncodedSplits, Hashes

if TYPE_CHECKING:
    from tasks.datasets.feature_columns import TableEncoding

# Pixel bytes of the largest data set that is loaded into memory. A constant, since the copies of a data set, and
# therefore plans and results, must not depend on the memory of a machine.
LARGE = 512 << 20


@dataclass(frozen=True, eq=False)
class CachedRows:
    """A split whose labels come from the list of files, and whose pixels come from the cache."""

    encoded: EncodedRows
    cached: MappedRows

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.encoded.shape

    @property
    def labels(self) -> Labels:
        return self.encoded.labels

    def __len__(self) -> int:
        return len(self.encoded)

    def pixels(self, rows: Indices) -> Pixels:
        return self.cached.pixels(rows)


@dataclass(frozen=True, eq=False)
class LargeImages:
    """A data set (`tasks.datasets.images.PictureSet`) whose images are not in memory.

    The hashes are the SHA-256 of each encoded image, (n, 32). `cache` is the file with its pixels.
    """

    train: PictureRows
    test: PictureRows
    classes: int
    names: tuple[str, ...]
    train_hashes: Hashes
    test_hashes: Hashes
    cache: CacheFile
    train_groups: NDArray[np.int64] | None = None
    train_origins: Hashes | None = None
    notes: tuple[str, ...] = ()
    features: tuple[str, ...] = field(default=(), init=False)
    encoding: TableEncoding | None = field(default=None, init=False)
    train_file_rows: None = field(default=None, init=False)

    is_table = False

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.train.shape

    def file_rows(self, rows: Labels) -> Labels:
        return rows

    @property
    def file_row_count(self) -> int:
        return len(self.train)


def open_large(digest: str, encoded: EncodedSplits) -> LargeImages:
    """Return the images of the data set with this digest. No image is read before its pixels are requested."""
    cache = CacheFile(path_of(digest), digest, lambda: encoded)
    train, test = encoded.train, encoded.test
    return LargeImages(
        CachedRows(train, MappedRows(cache, 0, len(train))),
        CachedRows(test, MappedRows(cache, len(train), len(test))),
        encoded.classes,
        encoded.names,
        train.hashes,
        test.hashes,
        cache,
        encoded.train_groups,
        encoded.train_origins,
        encoded.notes,
    )
