"""Read encoded images from Parquet files in the layouts of image hubs.

FOLDER/train.parquet and FOLDER/test.parquet, or shards of them, in the folder or its subfolder `data`:
FOLDER/data/train-00000-of-00002.parquet ..., or FOLDER/train/0000.parquet ... as converted by the hub, possibly in a
subfolder `default`. Validation images are the test split if there is no other.

Column `img` or `image` contains the encoded bytes of each image, directly or in the field `bytes` of a struct. Column
`label` contains its class as text, a dictionary or numbers. Hugging Face metadata may define names for integers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
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
from tasks.datasets.labelled import Labelled, LabelledContent, check_classes, read_labelled, select_entries
from tasks.datasets.options import AS_THEY_ARE, Options
from tasks.datasets.source import Source
from tasks.datasets.splits import SPLITS, VALIDATION, Split, choose_splits, split_called, unread_note
from tasks.worker.delimited_text import match_names
from tasks.worker.size_limits import TooLarge, read_parquet

RULE = "parquet pictures 2"
IMAGE_COLUMNS = ("img", "image")
LABEL = "label"
SHOWN = 3  # files listed in a message
# NAME.parquet, or NAME-00000-of-00002.parquet, which older versions of the hub extended by a hash.
FILE = re.compile(r"([a-z]+)(?:-(\d{5})-of-(\d{5})(?:-[0-9a-f]{16})?)?\.parquet", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class Shard:
    """The rows of one file: encoded images, and labels as text."""

    path: Path
    encoded: pa.Array  # large_binary
    labels: list[str]
    declared: tuple[str, ...]  # class names, in order
    marks: list[str] | None = None  # marks of members and other images, if requested


def source(folder: Path, options: Options = AS_THEY_ARE, is_published: bool = False) -> Source | None:
    """Return the folder's images, or None if it has no such files.

    A published data set keeps its usual number of classes, even if some do not occur. Raises DatasetError if a split or
    a shard is missing.
    """
    for directory in (folder, folder / "data", folder / "default"):
        files = find_files(directory)
        if not files:
            continue
        for absent in SPLITS:
            if absent not in choose_splits(files).values() and options.selection is None:
                present = next(iter(files.values()))[0]
                raise DatasetError(f"{directory} has {present.name}, but not {absent!r}; it must have both")
        return source_of(folder, files, options, is_published)
    return None


def source_of(folder: Path, all_files: dict[str, list[Path]], options: Options, is_published: bool) -> Source:
    files = {name: all_files[name] for name in choose_splits(all_files)}
    unread = [] if VALIDATION in files else all_files.get(VALIDATION, [])
    all_paths = [path for paths in (*files.values(), unread) for path in paths]
    notes = (unread_note(sum(map(count_rows, unread))),) if unread else ()
    rule = f"{RULE} published" if is_published else RULE
    return Source(rule, tuple(all_paths), lambda: read_content(folder, files, options, is_published), notes=notes)


def find_files(folder: Path) -> dict[str, list[Path]]:
    """Return the files of each split (train, test and validation), in shard order."""
    files: dict[str, list[Path]] = {}
    parts: dict[str, set[tuple[int, int]]] = {}  # shard number, number of shards
    for path in sorted(folder.glob("*.parquet")) if folder.is_dir() else ():
        match = FILE.fullmatch(path.name)
        split = match and split_called(match[1])
        if match and split:
            files.setdefault(split, []).append(path)
            parts.setdefault(split, set()).add((int(match[2] or 0), int(match[3] or 1)))
    of_folders = _find_shard_folders(folder)
    ambiguous_split = next((split for split in of_folders if split in files), None)
    if ambiguous_split is not None:
        raise DatasetError(
            f"{folder} has {files[ambiguous_split][0].name} and the folder "
            f"{of_folders[ambiguous_split][0].parent.name!r}; keep one of them"
        )
    for split, paths in files.items():
        count = len(paths)
        if parts[split] != {(number, count) for number in range(count)}:
            if count > 1:
                names = f"{paths[0].name} and {count - 1} more"
            else:
                names = paths[0].name
            raise DatasetError(f"{folder} has {names}; expected all parts of {split}, once each")
    return files | of_folders


def _find_shard_folders(folder: Path) -> dict[str, list[Path]]:
    """Return the numbered files of each split (0000.parquet, 0001.parquet, ...) in a folder, in order."""
    files: dict[str, list[Path]] = {}
    for directory in sorted(folder.iterdir()) if folder.is_dir() else ():
        split = split_called(directory.name)
        paths = []
        if split and directory.is_dir():
            paths = sorted(directory.glob("*.parquet"))
        if not split or not paths:
            continue
        if split in files:
            folder_names = f"{files[split][0].parent.name!r} and {directory.name!r}"
            raise DatasetError(f"{folder} has the folders {folder_names}; keep one of them")
        numbers = [int(path.stem) for path in paths if path.stem.isdecimal()]
        if numbers != list(range(len(paths))):
            raise DatasetError(
                f"{directory} has {', '.join(path.name for path in paths[:SHOWN])}; its files must be 0000.parquet, "
                "0001.parquet and so on, without gaps"
            )
        files[split] = paths
    return files


def read_content(folder: Path, files: dict[str, list[Path]], options: Options, is_published: bool) -> LabelledContent:
    """Decode all images in threads. Raises DatasetError, naming file and row, if an image is invalid."""
    selected = options.selection
    column = "" if selected is None else selected.column
    shards = {path: _read_shard(path, column) for paths in files.values() for path in paths}
    splits = choose_splits(files)
    declared = {shard.declared for shard in shards.values()}
    if len(declared) > 1:
        raise DatasetError(f"{folder} has files that declare different class names; they must be the same")
    rows: list[tuple[Shard, int, Split]] = []
    for name, paths in files.items():
        for shard in map(shards.__getitem__, paths):
            rows += ((shard, row, splits[name]) for row in range(len(shard.labels)))
    labels = [shard.labels[row] for shard, row, _ in rows]
    names = declared.pop()
    try:
        if is_published:
            classes = number_published(labels, names, CLASSES)
        else:
            classes = number_classes(labels, names)
    except LabelError as error:
        raise DatasetError(f"{folder} {error}") from None
    entries = [
        Labelled(shard.path, label, split, row)
        for (shard, row, split), label in zip(rows, classes.labels.tolist(), strict=True)
    ]
    if selected is not None:
        marks = [(f"{shard.path}, row {row}", shard.marks[row]) for shard, row, _ in rows if shard.marks is not None]
        entries = select_entries(entries, selected, marks, folder, classes.names)
    if not is_published:
        check_classes(entries, classes.names, folder)

    def read(entry: Labelled) -> bytes:
        encoded: bytes = shards[entry.path].encoded[entry.row].as_py()
        return encoded

    return read_labelled(tuple(entries), classes.names, options, read)


def count_rows(path: Path) -> int:
    import pyarrow.parquet as pq

    try:
        return int(pq.read_metadata(path).num_rows)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable_parquet(path, error) from None


def _read_shard(path: Path, mark_column: str = "") -> Shard:
    """Read a file's images and labels and, if requested, the column that marks members."""
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(path)
        original_names = dict(
            zip(match_names(schema.names, (mark_column, *IMAGE_COLUMNS, LABEL)), schema.names, strict=True)
        )
        column = next((original_names[name] for name in IMAGE_COLUMNS if name in original_names), None)
        if column is None or LABEL not in original_names:
            raise DatasetError(f"{path} has the columns {', '.join(schema.names)}; expected img or image, and label")
        if mark_column and mark_column not in original_names:
            raise DatasetError(f"{path} has the columns {', '.join(schema.names)}; expected {mark_column} as well")
        label = original_names[LABEL]
        mark_columns = [original_names[mark_column]] if mark_column else []
        table = read_parquet(path, columns=list(dict.fromkeys([column, label, *mark_columns]))).combine_chunks()
        encoded = binary(table.column(column))
        values = column_values(table.column(label))
    except (OSError, pa.ArrowException, TooLarge) as error:
        raise _unreadable_parquet(path, error) from None
    if not len(encoded):
        raise DatasetError(f"{path} has no rows")
    if encoded.null_count:
        row = encoded.is_null().to_pylist().index(True)
        raise DatasetError(f"{path}, row {row} has no image; its bytes must be in the file")
    declared = declared_names(schema.metadata, label)
    labels = list(_cell_texts(path, LABEL, values, declared))
    for row, text in enumerate(labels):
        if not text:
            raise DatasetError(f"{path}, row {row} has no label")
    marks = None
    if mark_columns:
        marks = list(_cell_texts(path, mark_column, column_values(table.column(mark_columns[0]))))
    return Shard(path, encoded, labels, declared, marks)


def _cell_texts(path: Path, column: str, values: Sequence[Any], declared: Sequence[str] = ()) -> Iterator[str]:
    """Yield a column's cells as text, empty if missing. `declared` holds the names of numeric values."""
    for row, value in enumerate(values):
        try:
            yield name_label(value, declared)
        except LabelError as error:
            raise DatasetError(f"{path}, row {row}: {column} {error}") from None


def binary(column: pa.ChunkedArray) -> pa.Array:
    """Return the encoded bytes as one array, from a column of bytes or of structs with the field `bytes`."""
    import pyarrow.compute as pc

    if pa.types.is_struct(column.type):
        column = pc.struct_field(column, "bytes")
    return pa.concat_arrays(column.cast(pa.large_binary()).chunks or [pa.array([], pa.large_binary())])


def _unreadable_parquet(path: Path, error: Exception) -> DatasetError:
    return DatasetError(f"{path} cannot be read: {' '.join(str(error).split())}")
