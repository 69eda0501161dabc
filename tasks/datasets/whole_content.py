"""Images in memory that are enlarged by rows, since a small data set in a large shape may exceed the memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from tasks.datasets.copies import contents
from tasks.datasets.images import Images, Indices, Labels, PictureRows, Pixels, as_shape
from tasks.datasets.mixtures import origins
from tasks.datasets.picture_rows import whole_split
from tasks.datasets.source import Content, EncodedRows, EncodedSplits, Extent, Hashes, Renewed


@dataclass(frozen=True, eq=False)
class HashedRows:
    """A split in memory, with the digest of the pixels of each image."""

    original: PictureRows

    @cached_property
    def hashes(self) -> Hashes:
        return contents(whole_split(self.original))

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.original.shape

    @property
    def labels(self) -> Labels:
        return self.original.labels

    def __len__(self) -> int:
        return len(self.original)

    def pixels(self, rows: Indices) -> Pixels:
        return self.original.pixels(rows)


@dataclass(frozen=True, eq=False)
class ReshapedRows:
    """A split whose images are converted to another shape when they are read."""

    original: EncodedRows
    shape: tuple[int, int, int]

    @property
    def hashes(self) -> Hashes:
        return self.original.hashes

    @property
    def labels(self) -> Labels:
        return self.original.labels

    def __len__(self) -> int:
        return len(self.original)

    def pixels(self, rows: Indices) -> Pixels:
        return as_shape(self.original.pixels(rows), self.shape)


def reshape_splits(splits: EncodedSplits, shape: tuple[int, int, int]) -> EncodedSplits:
    """Return the splits with images of another shape."""
    if splits.shape == shape:
        return splits
    return replace(splits, train=ReshapedRows(splits.train, shape), test=ReshapedRows(splits.test, shape))


@dataclass(frozen=True, eq=False)
class WholeContent:
    """A data set that is read whole, as one that is read by rows. `read` returns its content."""

    read: Callable[[], Content]

    @cached_property
    def images(self) -> Images:
        return self.read().images()

    def extent(self) -> Extent:
        return Extent(len(self.images.train) + len(self.images.test), self.images.shape)

    def digest(self) -> str:
        return self.read().digest()

    def renew(self) -> Renewed:
        return Renewed(self.digest())

    def open_rows(self) -> EncodedSplits:
        """Open the images. Their origins are those that the images of this data set have in every other shape."""
        images = self.images
        return EncodedSplits(
            HashedRows(images.train),
            HashedRows(images.test),
            images.classes,
            images.names,
            images.train_groups,
            origins(images),
            images.notes,
        )
