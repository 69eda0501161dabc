"""Data sets of the Hugging Face hub in the cache of its library `datasets`.

They are written `hf:NAME@REVISION` or `hf:NAME/CONFIG@REVISION`. `datasets.load_dataset` unpacks each split to Arrow
files in FOLDER/NAMESPACE___NAME/CONFIG/VERSION/COMMIT, where FOLDER is HF_DATASETS_CACHE, or `datasets` in HF_HOME.
Engram memory-maps these files and reads their images by row, without the library. `tasks.datasets.image_columns`
defines the columns.

REVISION is a commit, its beginning, or a branch or tag whose commit the hub's cache on this machine knows. It may be
omitted if the cache has only one revision. The name of a pinned data set contains the configuration and the commit.

A data set that is not in the cache is downloaded only within `allow_downloads`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from tasks.contract.extras import DATASETS
from tasks.datasets.dataset import HUB, DatasetError, UnknownDataset, file_bytes
from tasks.datasets.image_columns import ShardRows, encoded_image, encoded_images, find_columns, label_rows, list_rows
from tasks.datasets.labelled import Labelled
from tasks.datasets.listing import Listing, listing_source
from tasks.datasets.options import Options
from tasks.datasets.source import Source
from tasks.datasets.splits import SPLITS, VALIDATION, choose_splits, split_called, unread_note
from tasks.worker.files import expand_home

RULE = "hub pictures 1"
NAME = re.compile(r"([A-Za-z0-9_][\w.-]*(?:/[A-Za-z0-9_][\w.-]*){0,2})(?:@([\w-]+(?:[./][\w-]+)*))?", re.ASCII)
INFO = "dataset_info.json"
PATH = "path"  # the field of a struct that names a file, if it holds no bytes
SHORTEST = 7  # characters of a commit

_may_download = ContextVar("may_download", default=False)
_downloaded: dict[tuple[str, str], Cached] = {}  # by name and revision, since the cache may not know a branch


@dataclass(frozen=True)
class Cached:
    """A data set in the cache: the folder of its files, and the parts of its name."""

    folder: Path
    name: str
    config: str
    commit: str

    def __str__(self) -> str:
        return f"{HUB}{self.name}/{self.config}@{self.commit}"


@contextmanager
def allow_downloads(is_allowed: bool = True) -> Iterator[None]:
    """Within the block, download data sets of the hub that are not in the cache."""
    before = _may_download.set(is_allowed)
    try:
        yield
    finally:
        _may_download.reset(before)


def locate(text: str, options: Options) -> tuple[str, Source]:
    """Return the full name and the images of `hf:TEXT`.

    Raises UnknownDataset if the name is invalid or ambiguous, and DatasetError if the data set is not in the cache.
    """
    match = NAME.fullmatch(text)
    if match is None:
        raise UnknownDataset(f"data set '{HUB}{text}': write it as {HUB}NAME@REVISION or {HUB}NAME/CONFIG@REVISION")
    name, revision = match[1], match[2] or ""
    cached = _downloaded.get((name, revision)) or _find(name, revision)
    if cached is None:
        if not _may_download.get():
            raise DatasetError(_describe_absence(name, revision))
        cached = _downloaded[name, revision] = download(name, revision)
    return str(cached), _source(cached, options)


def cache_root() -> Path:
    """Return the folder in which `datasets` keeps its Arrow files."""
    folder = os.environ.get("HF_DATASETS_CACHE")
    return expand_home(folder) if folder else _home() / "datasets"


def _home() -> Path:
    return expand_home(os.environ.get("HF_HOME") or f"{os.environ.get('XDG_CACHE_HOME') or '~/.cache'}/huggingface")


def _find(name: str, revision: str) -> Cached | None:
    """Return the data set in the cache. None if it is not there; raises UnknownDataset if several fit the name."""
    candidates = _candidates(name)
    commit = _commit_of(name, revision)
    if revision:
        candidates = [
            cached
            for cached in candidates
            if cached.commit in (revision, commit) or (len(revision) >= SHORTEST and cached.commit.startswith(revision))
        ]
    for noun, values in (
        ("configurations", {cached.config for cached in candidates}),
        ("revisions", {cached.commit for cached in candidates}),
    ):
        if len(values) > 1:
            first = candidates[0]
            raise UnknownDataset(
                f"data set '{HUB}{name}' has several {noun} in the cache, {', '.join(sorted(values))}; name one, such "
                f"as {first}"
            )
    return max(candidates, key=lambda cached: cached.folder.parent.name, default=None)


def _candidates(name: str) -> list[Cached]:
    """Return the cached revisions and configurations that a name may mean."""
    parts = name.split("/")
    readings = [(name, "*")]
    if len(parts) > 1:
        readings.append(("/".join(parts[:-1]), parts[-1]))
    if len(parts) > 2:
        readings = readings[1:]
    candidates = []
    for repository, config in readings:
        *namespace, last = repository.split("/")
        folder = cache_root() / "___".join((*namespace, _snake_case(last)))
        for path in sorted(folder.glob(f"{config}/*/*")):
            if (path / INFO).is_file() and "." not in path.name:
                candidates.append(Cached(path, repository, path.parts[-3], path.name))
        if candidates:
            break
    return candidates


def _snake_case(name: str) -> str:
    """Return a name as `datasets` writes it in its cache: MNIST as mnist, TinyImages as tiny_images."""
    name = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    return re.sub(r"([a-z\d])([A-Z])", r"\1_\2", name).lower()


def _commit_of(name: str, revision: str) -> str:
    """Return the commit of a branch or tag in the hub's cache, empty if it is unknown."""
    hub = os.environ.get("HF_HUB_CACHE")
    folder = expand_home(hub) if hub else _home() / "hub"
    repository = "--".join(("datasets", *name.split("/")[:2]))
    try:
        return (folder / repository / "refs" / (revision or "main")).read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _describe_absence(name: str, revision: str) -> str:
    """Return the message for a data set that is not in the cache, with the command that downloads it."""
    existing = sorted({str(cached) for cached in _candidates(name)})
    has = f", which has {', '.join(existing)}" if existing else ""
    repository, config = split_name(name)
    arguments = [
        repr(repository),
        *([repr(config)] if config else []),
        *([f"revision={revision!r}"] if revision else []),
    ]
    command = f'python -c "from datasets import load_dataset as d; d({", ".join(arguments)})"'
    return (
        f"data set {_full_name(name, revision)!r} is not in the cache {cache_root()}{has}; add --download to the "
        f"command, or fetch it with: {command}"
    )


def _full_name(name: str, revision: str) -> str:
    return f"{HUB}{name}@{revision}" if revision else f"{HUB}{name}"


def split_name(name: str) -> tuple[str, str | None]:
    """Split a name into the repository on the hub and the configuration, if any."""
    parts = name.split("/")
    return "/".join(parts[:2]), parts[2] if len(parts) > 2 else None


def download(name: str, revision: str) -> Cached:
    """Download a data set into the cache, and return it. Raises DatasetError if this is impossible."""
    if not DATASETS.is_installed:
        raise DatasetError(f"downloading data set '{HUB}{name}' needs {DATASETS.advice}")
    import datasets
    from huggingface_hub import HfApi

    repository, config = split_name(name)
    full_name = _full_name(name, revision)
    datasets.disable_progress_bars()
    try:
        # Without a connection, `datasets` would silently take another revision from the cache.
        commit = str(HfApi().dataset_info(repository, revision=revision or None).sha)
        builder = datasets.load_dataset_builder(repository, config, revision=commit)
        builder.download_and_prepare()
    except Exception as error:  # of any of the libraries below
        message = " ".join(str(error).split())
        raise DatasetError(f"data set {full_name!r} cannot be downloaded: {message}") from None
    if builder.hash != commit:
        raise DatasetError(f"data set {full_name!r} cannot be downloaded: got revision {builder.hash}, not {commit}")
    return Cached(Path(builder.cache_dir), repository, builder.config.name, commit)


def _source(cached: Cached, options: Options) -> Source:
    splits = read_info(cached.folder)
    read_as = choose_splits(splits)
    for absent in SPLITS:
        if absent not in read_as.values() and options.selection is None:
            raise DatasetError(
                f"data set '{cached}' has the splits {', '.join(splits) or 'none'}, but not {absent!r}; it must have "
                "both"
            )
    files = {split: splits[split].paths for split in read_as}
    notes: tuple[str, ...] = ()
    if VALIDATION in splits and VALIDATION not in read_as:
        notes = (unread_note(splits[VALIDATION].count),)
    return listing_source(
        RULE,
        (cached.folder / INFO, *(path for paths in files.values() for path in paths)),
        lambda: list_files(cached.folder, {split: splits[split] for split in read_as}, options),
        options,
        notes,
    )


@dataclass(frozen=True)
class CachedSplit:
    """The files of a split, and its number of rows."""

    paths: tuple[Path, ...]
    count: int


def read_info(folder: Path) -> dict[str, CachedSplit]:
    """Return the splits train, test and validation of a cached data set. Raises DatasetError if a file is missing."""
    path = folder / INFO
    splits = {}
    try:
        info = json.loads(file_bytes(path))
        for name, split in info["splits"].items():
            usual_name = split_called(name)
            if usual_name is None:
                continue
            if usual_name in splits:
                raise DatasetError(f"{folder} has two splits that are called {usual_name}; keep one of them")
            shards = len(split.get("shard_lengths") or [1])
            stem = f"{_snake_case(str(info['dataset_name']))}-{name}"
            names = [f"{stem}-{number:05d}-of-{shards:05d}" for number in range(shards)] if shards > 1 else [stem]
            splits[usual_name] = CachedSplit(
                tuple(folder / f"{name}.arrow" for name in names), int(split["num_examples"])
            )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, DatasetError):
            raise
        raise DatasetError(f"{path} does not describe a data set in the cache: {error!r:.80}") from None
    for split in splits.values():
        for file in split.paths:
            if not file.is_file():
                raise DatasetError(f"there is no file {file}; delete the folder, and download the data set again")
    return splits


def list_files(folder: Path, splits: Mapping[str, CachedSplit], options: Options) -> Listing:
    """List the images in these splits. Reads their labels. Raises DatasetError if a label is missing or invalid."""
    images = MappedImages()
    shards: dict[str, list[ShardRows]] = {}
    for name, split in splits.items():
        shards[name] = [images.open(path, options) for path in split.paths]
        count = sum(len(shard.labels) for shard in shards[name])
        if count != split.count:
            raise DatasetError(f"{folder} has {count} rows in its split {name}, but {INFO} states {split.count}")
    return list_rows(folder, shards, options, images.read)


@dataclass(eq=False)
class MappedImages:
    """The images in memory-mapped Arrow files, by file and row."""

    _columns: dict[Path, tuple[pa.ChunkedArray, pa.ChunkedArray]] = field(default_factory=dict)  # as stored, and bytes

    def open(self, path: Path, options: Options) -> ShardRows:
        """Map a file, and return its labels. Raises DatasetError if it is damaged or has no such columns."""
        try:
            with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as stream:
                columns = find_columns(path, stream.schema, options)
                table = stream.read_all().select([columns.image, *columns.of_labels])
            table.validate(full=True)
        except (OSError, pa.ArrowException) as error:
            raise DatasetError(f"{path} cannot be read: {' '.join(str(error).split())}") from None
        self._columns[path] = (table.column(columns.image), encoded_images(table.column(columns.image)))
        return label_rows(path, columns, table)

    def read(self, entry: Labelled) -> bytes:
        """Return an encoded image, from the column or from the file that it names. Raises DatasetError."""
        assert entry.row is not None
        images, encoded = self._columns[entry.path]
        if not encoded[entry.row].is_valid and pa.types.is_struct(images.type) and images[entry.row].is_valid:
            file = images[entry.row].as_py().get(PATH)
            if isinstance(file, str) and os.path.isabs(file):
                return file_bytes(Path(file))
        return encoded_image(encoded, entry.row, entry)
