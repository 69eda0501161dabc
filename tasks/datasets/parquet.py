"""Picture files in Parquet: train.parquet and test.parquet, the layout of image hubs.

Column `img` or `image` holds each picture's encoded bytes (alone, or as the field `bytes` of a struct), column
`label` its class. Rows are numbered in a random order (`tasks.datasets.row_order`), not in that of the files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from tasks.datasets.dataset import DatasetError
from tasks.datasets.images import Images, Labels, Pixels, decode_picture
from tasks.datasets.options import AS_THEY_ARE, ONE_SIZE, Options
from tasks.datasets.row_order import draw_class_order
from tasks.datasets.source import Source, digest_of
from tasks.worker.size_limits import TooLarge, read_parquet

RULE = "parquet pictures 2"
FILES = ("train.parquet", "test.parquet")
IMAGE_COLUMNS = ("img", "image")


@dataclass(frozen=True, eq=False)
class Pictures:
    """One split: the encoded pictures and their labels."""

    path: Path
    encoded: pa.Array  # large_binary
    labels: Labels


@dataclass(frozen=True)
class ParquetContent:
    train: Pictures
    test: Pictures
    options: Options = AS_THEY_ARE

    def digest(self) -> str:
        return digest_of(RULE, (*pieces(self.train), *pieces(self.test)))

    def images(self) -> Images:
        train, test = stack_pictures(self.train, self.options), stack_pictures(self.test, self.options)
        if train.shape[3] != test.shape[3]:  # a split that happens to be all grey
            train, test = (np.repeat(images, 3 // images.shape[3], axis=3) for images in (train, test))
        classes = 1 + int(max(self.train.labels.max(initial=0), self.test.labels.max(initial=0)))
        of_train, of_test = draw_class_order(self.train.labels, "train"), draw_class_order(self.test.labels, "test")
        return Images(train[of_train], self.train.labels[of_train], test[of_test], self.test.labels[of_test], classes)


def source(folder: Path, options: Options = AS_THEY_ARE) -> Source | None:
    """The folder's two files, their pictures brought to the options' shape; None unless both are there."""
    files = tuple(folder / name for name in FILES)
    if not all(path.is_file() for path in files):
        return None
    return Source(RULE, files, lambda: ParquetContent(pictures(files[0]), pictures(files[1]), options))


def pictures(path: Path) -> Pictures:
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(path)
        column = next((name for name in IMAGE_COLUMNS if name in schema.names), None)
        if column is None or "label" not in schema.names:
            raise DatasetError(f"{path} has the columns {', '.join(schema.names)}; expected img or image, and label")
        table = read_parquet(path, columns=[column, "label"]).combine_chunks()
        encoded = binary(table.column(column))
        labels = table.column("label").cast(pa.int64())
    except (OSError, pa.ArrowException, TooLarge) as error:
        raise DatasetError(f"{path} cannot be read: {error}") from error
    if encoded.null_count or labels.null_count:
        raise DatasetError(f"{path} has rows without a picture or a label")
    return Pictures(path, encoded, np.array(labels.to_numpy()))


def binary(column: pa.ChunkedArray) -> pa.Array:
    """The encoded bytes as one array, from a column of bytes or of structs with a field `bytes`."""
    import pyarrow.compute as pc

    if pa.types.is_struct(column.type):
        column = pc.struct_field(column, "bytes")
    return pa.concat_arrays(column.cast(pa.large_binary()).chunks or [pa.array([], pa.large_binary())])


def pieces(split: Pictures) -> Iterator[bytes | memoryview]:
    """What a split's digest covers: each picture's bytes as they are encoded, and the labels."""
    yield len(split.encoded).to_bytes(8, "little")
    for picture in split.encoded:
        yield picture.as_py()
    yield split.labels.astype("<i8").tobytes()


def stack_pictures(split: Pictures, options: Options = AS_THEY_ARE) -> Pixels:
    """All pictures of a split (n, h, w, c): grey (c = 1) where every one is, else RGB; all must be of one size."""
    images = [
        options.reshape(picture_pixels(split.path, row, scalar.as_py())[None])[0]
        for row, scalar in enumerate(split.encoded)
    ]
    if not images:
        raise DatasetError(f"{split.path} has no rows")
    channels = max(image.shape[2] for image in images)
    out = np.empty((len(images), *images[0].shape[:2], channels), np.uint8)
    for row, image in enumerate(images):
        if image.shape[:2] != out.shape[1:3]:
            sizes = f"{image.shape[0]} x {image.shape[1]}, the first {out.shape[1]} x {out.shape[2]}"
            raise DatasetError(f"{split.path}: the picture in row {row} is {sizes}; {ONE_SIZE}")
        out[row] = image
    return out


def picture_pixels(path: Path, row: int, encoded: bytes) -> Pixels:
    try:
        return decode_picture(encoded)
    except (OSError, SyntaxError, ValueError) as error:
        raise DatasetError(f"{path}: the picture in row {row} cannot be decoded: {error}") from error
