"""Columns of encoded images and labels in tables, as in Parquet and Arrow files of the Hugging Face hub.

The column `img` or `image`, or the one in the option `#image=NAME`, contains the encoded bytes of each image, directly
or in the field `bytes` of a struct. The column `label`, or the one in `#label=NAME`, contains its class as text, a
dictionary or numbers. Hugging Face metadata may define names for integers (`ClassLabel`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from tasks.datasets.benchmark_files import CLASSES
from tasks.datasets.classes import (
    LabelError,
    column_values,
    declared_names,
    name_label,
    number_classes,
    number_published,
)
from tasks.datasets.dataset import DatasetError
from tasks.datasets.labelled import Labelled, Reader, check_classes, select_entries
from tasks.datasets.listing import Listing
from tasks.datasets.options import Options
from tasks.datasets.splits import Split, choose_splits
from tasks.worker.delimited_text import match_names

IMAGES = ("img", "image")
LABEL = "label"
BYTES = "bytes"  # the field of a struct that holds the encoded image


@dataclass(frozen=True)
class ImageColumns:
    """The columns of a file, as spelled there. `mark` marks members, if requested (empty: no such column)."""

    image: str
    label: str
    mark: str
    declared: tuple[str, ...]  # class names, in order

    @property
    def of_labels(self) -> list[str]:
        """The columns without the images."""
        return list(dict.fromkeys(filter(None, (self.label, self.mark))))


@dataclass(frozen=True, eq=False)
class ShardRows:
    """The rows of one file without their images: labels and, if requested, marks of members, as text."""

    path: Path
    labels: list[str]
    declared: tuple[str, ...]
    marks: list[str] | None = None


def find_columns(path: Path, schema: pa.Schema, options: Options) -> ImageColumns:
    """Return the columns of images and labels. Raises DatasetError if one is missing or contains no images."""
    images = IMAGES if options.image is None else (options.image,)
    label = options.label or LABEL
    mark = "" if options.selection is None else options.selection.column
    spelled = dict(zip(match_names(schema.names, (mark, *images, label)), schema.names, strict=True))
    image = next((spelled[name] for name in images if name in spelled), None)
    if image is None or label not in spelled:
        raise DatasetError(
            f"{path} has the columns {', '.join(schema.names)}; expected {' or '.join(images)}, and {label}"
            f"{_hint(schema, image, label if label in spelled else None)}"
        )
    if mark and mark not in spelled:
        raise DatasetError(f"{path} has the columns {', '.join(schema.names)}; expected {mark} as well")
    if not _holds_images(schema.field(image).type):
        raise DatasetError(
            f"{path}: column {image} is {schema.field(image).type}; it must contain encoded images, as bytes or as a "
            f"struct with a field {BYTES}"
        )
    names = declared_names(schema.metadata, spelled[label])
    return ImageColumns(image, spelled[label], spelled[mark] if mark else "", names)


def _hint(schema: pa.Schema, image: str | None, label: str | None) -> str:
    """Return the end of a message that names the options for other columns, if a column may contain images."""
    candidates = [field.name for field in schema if _holds_images(field.type)]
    if image is None and not candidates:
        return ""
    options = [] if image is not None else [f"#image={candidates[0]}"]
    if label is None:
        remaining = [field.name for field in schema if field.name != image and field.name not in candidates]
        options.append(f"#label={(remaining or ['COLUMN'])[0]}")
    return f". For other columns, add {''.join(options)} to the data set's name"


def _holds_images(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return kind.get_field_index(BYTES) >= 0 and _holds_images(kind.field(BYTES).type)
    if pa.types.is_null(kind):  # no row has an image, which is reported with the row
        return True
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


def label_rows(path: Path, columns: ImageColumns, table: pa.Table) -> ShardRows:
    """Return the rows of a table of labels. Raises DatasetError, naming the row, if a label is missing or invalid."""
    if not table.num_rows:
        raise DatasetError(f"{path} has no rows")
    labels = list(_cell_texts(path, columns.label, column_values(table.column(columns.label)), columns.declared))
    for row, text in enumerate(labels):
        if not text:
            raise DatasetError(f"{path}, row {row} has no label")
    marks = None
    if columns.mark:
        marks = list(_cell_texts(path, columns.mark, column_values(table.column(columns.mark))))
    return ShardRows(path, labels, columns.declared, marks)


def _cell_texts(path: Path, column: str, values: Sequence[Any], declared: Sequence[str] = ()) -> Iterator[str]:
    """Yield a column's cells as text, empty if missing. `declared` holds the names of numeric values."""
    for row, value in enumerate(values):
        try:
            yield name_label(value, declared)
        except LabelError as error:
            raise DatasetError(f"{path}, row {row}: {column} {error}") from None


def list_rows(
    where: Path, shards: Mapping[str, Sequence[ShardRows]], options: Options, read: Reader, is_published: bool = False
) -> Listing:
    """List the rows of all files, by the name of their split. Raises DatasetError if the classes are unclear.

    A published data set keeps its usual number of classes, even if some do not occur.
    """
    selected = options.selection
    splits = choose_splits(shards)
    declared = {shard.declared for of_split in shards.values() for shard in of_split}
    if len(declared) > 1:
        raise DatasetError(f"{where} has files that declare different class names; they must be the same")
    rows: list[tuple[ShardRows, int, Split]] = []
    for name, of_split in shards.items():
        for shard in of_split:
            rows += ((shard, row, splits[name]) for row in range(len(shard.labels)))
    labels = [shard.labels[row] for shard, row, _ in rows]
    names = declared.pop()
    try:
        if is_published:
            classes = number_published(labels, names, CLASSES)
        else:
            classes = number_classes(labels, names)
    except LabelError as error:
        raise DatasetError(f"{where} {error}") from None
    entries = [
        Labelled(shard.path, label, split, row)
        for (shard, row, split), label in zip(rows, classes.labels.tolist(), strict=True)
    ]
    if selected is not None:
        marks = [(f"{shard.path}, row {row}", shard.marks[row]) for shard, row, _ in rows if shard.marks is not None]
        entries = select_entries(entries, selected, marks, where, classes.names)
    if not is_published:
        check_classes(entries, classes.names, where)
    return Listing(tuple(entries), classes.names, read)


def encoded_images(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of encoded images as bytes."""
    import pyarrow.compute as pc

    return pc.struct_field(column, BYTES) if pa.types.is_struct(column.type) else column


def encoded_image(column: pa.ChunkedArray, row: int, where: object) -> bytes:
    """Return the encoded image in a row of `encoded_images`. Raises DatasetError if there is none."""
    encoded: bytes | None = column[row].as_py()
    if encoded is None:
        raise DatasetError(f"{where} has no image; its bytes must be in the file")
    return encoded
