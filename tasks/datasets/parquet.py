"""Read encoded images from Parquet files in the layouts of image hubs.

FOLDER/train.parquet and FOLDER/test.parquet, or shards of them, in the folder or its subfolder `data`:
FOLDER/data/train-00000-of-00002.parquet ..., or FOLDER/train/0000.parquet ... as converted by the hub, possibly in a
subfolder `default`. Validation images are the test split if there is no other.

`tasks.datasets.image_columns` defines the columns. Listing the images reads the labels only; the images are read by row
groups (`tasks.datasets.row_groups`).
"""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa

from tasks.datasets.dataset import DatasetError
from tasks.datasets.image_columns import ShardRows, find_columns, label_rows, list_rows
from tasks.datasets.listing import Listing, listing_source
from tasks.datasets.options import AS_THEY_ARE, Options
from tasks.datasets.row_groups import GroupedImages
from tasks.datasets.source import Source
from tasks.datasets.splits import SPLITS, VALIDATION, choose_splits, split_called, unread_note
from tasks.worker.size_limits import TooLarge, read_parquet

RULE = "parquet pictures 2"
SHOWN = 3  # files listed in a message
# NAME.parquet, or NAME-00000-of-00002.parquet, which older versions of the hub extended by a hash.
FILE = re.compile(r"([a-z]+)(?:-(\d{5})-of-(\d{5})(?:-[0-9a-f]{16})?)?\.parquet", re.IGNORECASE)


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
    return listing_source(
        rule, tuple(all_paths), lambda: list_files(folder, files, options, is_published), options, notes
    )


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


def list_files(folder: Path, files: dict[str, list[Path]], options: Options, is_published: bool) -> Listing:
    """List the images of these files, reading their labels. Raises DatasetError if a label is missing or invalid."""
    columns: dict[Path, str] = {}
    shards: dict[str, list[ShardRows]] = {}
    for name, paths in files.items():
        shards[name] = []
        for path in paths:
            image, rows = read_labels(path, options)
            columns[path] = image
            shards[name].append(rows)
    return list_rows(folder, shards, options, GroupedImages(columns).read, is_published)


def count_rows(path: Path) -> int:
    import pyarrow.parquet as pq

    try:
        return int(pq.read_metadata(path).num_rows)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable_parquet(path, error) from None


def read_labels(path: Path, options: Options) -> tuple[str, ShardRows]:
    """Return the name of the image column, and the labels. Raises DatasetError if a column or a label is missing."""
    import pyarrow.parquet as pq

    try:
        columns = find_columns(path, pq.read_schema(path), options)
        table = read_parquet(path, columns=columns.of_labels)
    except (OSError, pa.ArrowException, TooLarge) as error:
        raise _unreadable_parquet(path, error) from None
    return columns.image, label_rows(path, columns, table)


def _unreadable_parquet(path: Path, error: Exception) -> DatasetError:
    return DatasetError(f"{path} cannot be read: {' '.join(str(error).split())}")
