"""Encoded pictures in Parquet: the layouts of image hubs.

FOLDER/train.parquet and FOLDER/test.parquet, or shards of them, in the folder or in `data` inside it:
FOLDER/data/train-00000-of-00002.parquet ... Validation images are the test split if there is no other.

Column `img` or `image` holds each picture's encoded bytes (alone, or as the field `bytes` of a struct), column `label`
its class: text, a dictionary, or whole numbers, for which the metadata of the Hugging Face hub may have names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from tasks.datasets.benchmark_files import CLASSES
from tasks.datasets.classes import LabelError, declared_names, name_label, number_classes, number_published
from tasks.datasets.dataset import DatasetError
from tasks.datasets.labelled import Labelled, LabelledContent, check_classes, read_labelled
from tasks.datasets.options import AS_THEY_ARE, Options
from tasks.datasets.source import Source
from tasks.datasets.splits import SPLITS, VALIDATION, Split, choose_splits, split_called, unread_note
from tasks.worker.delimited_text import match_names
from tasks.worker.size_limits import TooLarge, read_parquet

RULE = "parquet pictures 2"
IMAGE_COLUMNS = ("img", "image")
LABEL = "label"
# NAME.parquet, or NAME-00000-of-00002.parquet with the hash that the hub used to append.
FILE = re.compile(r"([a-z]+)(?:-(\d{5})-of-(\d{5})(?:-[0-9a-f]{16})?)?\.parquet", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class Shard:
    """The rows of one file: encoded pictures, and their labels as text."""

    path: Path
    encoded: pa.Array  # large_binary
    labels: list[str]
    declared: tuple[str, ...]  # names of the classes, in their order


def source(folder: Path, options: Options = AS_THEY_ARE, is_published: bool = False) -> Source | None:
    """The folder's pictures; None unless there are files of a training and a test split.

    Labels of a published set are its numbers, whichever of its classes the files have.

    Raises DatasetError for a shard that is missing.
    """
    for directory in (folder, folder / "data"):
        files = find_files(directory)
        splits = choose_splits(files)
        if set(splits.values()) == set(SPLITS):
            return source_of(folder, files, options, is_published)
    return None


def source_of(folder: Path, all_files: dict[str, list[Path]], options: Options, is_published: bool) -> Source:
    files = {name: all_files[name] for name in choose_splits(all_files)}
    unread = [] if VALIDATION in files else all_files.get(VALIDATION, [])
    every = [path for paths in (*files.values(), unread) for path in paths]
    notes = (unread_note(sum(map(count_rows, unread))),) if unread else ()
    rule = f"{RULE} published" if is_published else RULE
    return Source(rule, tuple(every), lambda: read_content(folder, files, options, is_published), notes=notes)


def find_files(folder: Path) -> dict[str, list[Path]]:
    """The files of each split: train, test and validation, in the order of their shards."""
    files: dict[str, list[Path]] = {}
    parts: dict[str, set[tuple[int, int]]] = {}  # the number of each, and of all
    for path in sorted(folder.glob("*.parquet")) if folder.is_dir() else ():
        match = FILE.fullmatch(path.name)
        split = match and split_called(match[1])
        if match and split:
            files.setdefault(split, []).append(path)
            parts.setdefault(split, set()).add((int(match[2] or 0), int(match[3] or 1)))
    for split, paths in files.items():
        count = len(paths)
        if parts[split] != {(number, count) for number in range(count)}:
            names = f"{paths[0].name} and {count - 1} more" if count > 1 else paths[0].name
            raise DatasetError(f"{folder} has {names}; all parts of {split} must be there, once each")
    return files


def read_content(folder: Path, files: dict[str, list[Path]], options: Options, is_published: bool) -> LabelledContent:
    """All pictures, decoded by threads; a DatasetError naming the file and the row that is not as it should be."""
    shards = {path: read_shard(path) for paths in files.values() for path in paths}
    splits = choose_splits(files)
    declared = {shard.declared for shard in shards.values()}
    if len(declared) > 1:
        raise DatasetError(f"{folder} has files that declare different names of classes; they must be the same")
    rows: list[tuple[Shard, int, Split]] = []
    for name, paths in files.items():
        for shard in map(shards.__getitem__, paths):
            rows += ((shard, row, splits[name]) for row in range(len(shard.labels)))
    labels = [shard.labels[row] for shard, row, _ in rows]
    names = declared.pop()
    try:
        classes = number_published(labels, names, CLASSES) if is_published else number_classes(labels, names)
    except LabelError as error:
        raise DatasetError(f"{folder} {error}") from None
    entries = tuple(
        Labelled(shard.path, label, split, row)
        for (shard, row, split), label in zip(rows, classes.labels.tolist(), strict=True)
    )
    if not is_published:
        check_classes(entries, classes.names, folder)

    def read(entry: Labelled) -> bytes:
        encoded: bytes = shards[entry.path].encoded[entry.row].as_py()
        return encoded

    return read_labelled(entries, classes.names, options, read)


def count_rows(path: Path) -> int:
    import pyarrow.parquet as pq

    try:
        return int(pq.read_metadata(path).num_rows)
    except (OSError, pa.ArrowException) as error:
        raise unreadable_parquet(path, error) from None


def read_shard(path: Path) -> Shard:
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(path)
        original_names = dict(zip(match_names(schema.names, (*IMAGE_COLUMNS, LABEL)), schema.names, strict=True))
        column = next((original_names[name] for name in IMAGE_COLUMNS if name in original_names), None)
        if column is None or LABEL not in original_names:
            raise DatasetError(f"{path} has the columns {', '.join(schema.names)}; expected img or image, and label")
        label = original_names[LABEL]
        table = read_parquet(path, columns=[column, label]).combine_chunks()
        encoded = binary(table.column(column))
        values = table.column(label).to_pylist()
    except (OSError, pa.ArrowException, TooLarge) as error:
        raise unreadable_parquet(path, error) from None
    if not len(encoded):
        raise DatasetError(f"{path} has no rows")
    if encoded.null_count:
        row = encoded.is_null().to_pylist().index(True)
        raise DatasetError(f"{path}, row {row} has no picture; its bytes must be in the file")
    declared = declared_names(schema.metadata, label)
    return Shard(path, encoded, list(label_texts(path, values, declared)), declared)


def label_texts(path: Path, values: Sequence[Any], declared: Sequence[str]) -> Iterator[str]:
    for row, value in enumerate(values):
        try:
            text = name_label(value, declared)
        except LabelError as error:
            raise DatasetError(f"{path}, row {row}: label {error}") from None
        if not text:
            raise DatasetError(f"{path}, row {row} has no label")
        yield text


def binary(column: pa.ChunkedArray) -> pa.Array:
    """The encoded bytes as one array, from a column of bytes or of structs with a field `bytes`."""
    import pyarrow.compute as pc

    if pa.types.is_struct(column.type):
        column = pc.struct_field(column, "bytes")
    return pa.concat_arrays(column.cast(pa.large_binary()).chunks or [pa.array([], pa.large_binary())])


def unreadable_parquet(path: Path, error: Exception) -> DatasetError:
    return DatasetError(f"{path} cannot be read: {' '.join(str(error).split())}")
